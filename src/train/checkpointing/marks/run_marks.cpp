// SPDX-License-Identifier: Apache-2.0
#include "train/checkpointing/marks/run_marks.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <utility>
#include <variant>

#include "base/error.h"
#include "base/log.h"
#include "ckpt/disk/posix_disk.h"
#include "ckpt/marks/health.h"
#include "ckpt/marks/mark_file.h"
#include "obs/clock.h"
#include "obs/terminal/number_text.h"

namespace trireme::train {
namespace {

std::vector<ckpt::MarkedGeneration> generations_of(const std::filesystem::path& folder) {
  const std::unique_ptr<ckpt::Disk> disk = ckpt::posix_disk();
  return ckpt::marked_generations(*disk, folder, ckpt::read_marks(*disk, folder));
}

}  // namespace

RunMarks::RunMarks(Options options) : options_(std::move(options)), watch_(options_.good_after) {}

void RunMarks::append(ckpt::Marks lines) const {
  for (ckpt::MarksLine& line : lines) {
    std::visit([](auto& one) { one.time = obs::wall_seconds(); }, line);
  }
  options_.guard([&] { ckpt::add_marks(options_.folder, lines); });
}

void RunMarks::begin(int64_t epoch, int64_t step) {
  epoch_ = epoch;
  // Without marks there is nothing that an older step could be clean of.
  if (std::filesystem::exists(options_.folder / ckpt::marks_name)) {
    append({ckpt::ResumeLine{.epoch = epoch, .step = step}});
  }
  std::vector<ckpt::GenerationId> unmarked;
  for (const ckpt::MarkedGeneration& one : generations_of(options_.folder)) {
    if (!one.mark && one.id.epoch >= 0) unmarked.push_back(one.id);
  }
  watch_.begin(step, std::move(unmarked));
}

void RunMarks::saved(int64_t step) { add(watch_.add({.step = step, .epoch = epoch_})); }

void RunMarks::end_step(int64_t step, const std::optional<StepAlarm>& alarm) {
  add(watch_.end_step(step, alarm));
}

void RunMarks::add(std::vector<ckpt::MarkLine> lines) {
  if (lines.empty()) return;
  try {
    const ckpt::Marks known = ckpt::read_marks(*ckpt::posix_disk(), options_.folder);
    std::erase_if(lines,
                  [&](const auto& line) { return ckpt::mark_of(line.of, known).has_value(); });
  } catch (const base::IoError& error) {
    base::log_warning("checkpoints are not marked: {}", error.what());
    return;
  }
  write(lines);
}

void RunMarks::write(const std::vector<ckpt::MarkLine>& lines) {
  if (lines.empty()) return;
  try {
    append({lines.begin(), lines.end()});
  } catch (const base::IoError& error) {
    base::log_warning("checkpoints are not marked {}: {}", ckpt::name_of(lines.front().mark),
                      error.what());
  }
}

void RunMarks::diverged(int64_t first_bad, const std::string& why) {
  std::vector<ckpt::MarkLine> lines;
  const auto add = [&](const ckpt::GenerationId& id) {
    lines.push_back({.of = id,
                     .mark = ckpt::Mark::bad,
                     .detector = ckpt::divergence_detector,
                     .evidence = why});
  };
  // This line covers later checkpoints of this epoch, also one that is being written.
  add({.step = first_bad, .epoch = epoch_});
  int64_t bad = 0;
  try {
    for (const ckpt::MarkedGeneration& one : generations_of(options_.folder)) {
      if (one.id.step < first_bad) continue;
      ++bad;
      if (one.id.epoch >= 0 && one.id != lines.front().of) add(one.id);
    }
  } catch (const base::IoError& error) {
    base::log_warning("earlier checkpoints are not marked bad: {}", error.what());
  }
  write(lines);
  options_.log(fmt::format("marks     {} checkpoint{} of step {} and later {} bad: {}", bad,
                           bad == 1 ? "" : "s", obs::grouped(first_bad), bad == 1 ? "is" : "are",
                           why));
}

}  // namespace trireme::train
