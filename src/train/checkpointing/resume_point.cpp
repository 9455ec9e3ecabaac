// SPDX-License-Identifier: Apache-2.0
#include "train/checkpointing/resume_point.h"

#include <fmt/format.h>

#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/text/json.h"
#include "ckpt/disk/posix_disk.h"
#include "ckpt/generation/folder.h"
#include "ckpt/marks/mark_file.h"

namespace trireme::train {

ckpt::WantedMark wanted_mark(const Resume& resume) {
  return resume.from == Resume::From::good ? ckpt::WantedMark::good : ckpt::WantedMark::not_bad;
}

ckpt::ResumeChoice resume_choice(ckpt::Disk& disk, const std::filesystem::path& root,
                                 ckpt::WantedMark wanted) {
  const ckpt::Marks marks = ckpt::read_marks(disk, root);
  const auto all = ckpt::marked_generations(disk, root, marks);
  ckpt::ResumeChoice choice = ckpt::choose_resume(all, ckpt::ended_in_divergence(marks), wanted);
  if (!choice.steps.empty()) return choice;
  if (wanted == ckpt::WantedMark::good) {
    throw base::ConfigError(
        fmt::format("--resume good: {} has no checkpoint that is marked good: {}; use --resume "
                    "auto or --resume "
                    "STEP, or mark one that you trust with `trireme ckpt mark`",
                    root.string(), all.empty() ? "it has none at all" : ckpt::marks_text(all)));
  }
  if (!all.empty()) {
    throw base::Diverged(fmt::format(
        "--resume auto: every checkpoint in {} is marked bad: {}; train again with other settings "
        "or data, take one with --resume STEP, or mark one good with `trireme ckpt mark` if its "
        "mark is wrong",
        root.string(), ckpt::marks_text(all)));
  }
  return choice;
}

std::optional<ResumePoint> find_resume_point(const config::Config& config, const Resume& resume) {
  if (resume.from == Resume::From::start) return {};
  const std::filesystem::path root =
      std::filesystem::path(config.job.dump_folder) / config.checkpoint.folder;
  const std::unique_ptr<ckpt::Disk> disk = ckpt::posix_disk();
  const std::vector<int64_t> steps = resume.from == Resume::From::step
                                         ? std::vector{resume.step}
                                         : resume_choice(*disk, root, wanted_mark(resume)).steps;
  for (const int64_t step : steps) {
    const std::filesystem::path folder = root / ckpt::generation_name(step);
    if (!ckpt::missing_in(*disk, folder).empty()) continue;  // loading logs the reason
    return ResumePoint{folder, ckpt::read_manifest(*disk, folder)};
  }
  return {};
}

spec::Plan saved_plan(const std::filesystem::path& folder, const ckpt::Manifest& manifest) {
  try {
    return spec::plan_from_json(manifest.plan);
  } catch (const base::Error& error) {
    throw base::ConfigError(
        fmt::format("{}: the plan in its manifest cannot be read: {}; it was written by another "
                    "version. Resume "
                    "with that version, or start a new run from the weights (--init-from)",
                    folder.string(), error.what()));
  }
}

std::optional<config::SavedSums> saved_sums(const ResumePoint& point) {
  if (point.step() == 0) return {};
  const spec::Plan plan = saved_plan(point.folder, point.manifest);
  return config::SavedSums{.logical_dp = plan.layout.logical_dp,
                           .reduce = plan.layout.reduce,
                           .global_batch_size = saved_batch(point.folder, point.manifest.state)};
}

int64_t saved_batch(const std::filesystem::path& folder, const base::Json& state) {
  try {
    // Builds that did not record the configuration had no phases.
    const base::Json& batch = state.contains("config")
                                  ? state.at("config").at("training").at("global_batch_size")
                                  : state.at("samples_a_step");
    return batch.get<int64_t>();
  } catch (const base::Json::exception& error) {
    throw base::ConfigError(fmt::format("{}: the global batch in its manifest cannot be read: {}",
                                        folder.string(), error.what()));
  }
}

}  // namespace trireme::train
