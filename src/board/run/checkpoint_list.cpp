// SPDX-License-Identifier: Apache-2.0
#include "board/run/checkpoint_list.h"

#include <sys/stat.h>

#include <algorithm>
#include <exception>

#include "base/error.h"
#include "base/text/json.h"
#include "ckpt/disk/posix_disk.h"
#include "ckpt/generation/folder.h"
#include "ckpt/marks/resume_choice.h"

namespace trireme::board {
namespace {

namespace fs = std::filesystem;

constexpr size_t max_listed = 1000;

// A checkpoint is committed right after its manifest is written.
double time_of(const fs::path& file) {
  struct stat status {};
  if (::stat(file.c_str(), &status) != 0) return 0;
  return static_cast<double>(status.st_mtim.tv_sec) +
         1e-9 * static_cast<double>(status.st_mtim.tv_nsec);
}

// Returns no marks if they cannot be read.
ckpt::Marks marks_in(ckpt::Disk& disk, const fs::path& folder) {
  try {
    return ckpt::read_marks(disk, folder);
  } catch (const base::IoError&) {
    return {};  // `ckpt list` and a resume report the damage
  }
}

base::Json checkpoint_key(const base::Json& config, const char* key) {
  if (!config.is_object() || !config.contains("checkpoint")) return nullptr;
  const base::Json& section = config["checkpoint"];
  return section.is_object() && section.contains(key) ? section[key] : base::Json(nullptr);
}

}  // namespace

const CheckpointEntry* CheckpointList::rollback_target() const {
  for (const int64_t step : resume_steps) {
    const auto found = std::ranges::find(entries, step, &CheckpointEntry::step);
    if (found != entries.end() && found->problem.empty()) return &*found;
  }
  return nullptr;
}

CheckpointList read_checkpoints(const fs::path& run, const base::Json& config) {
  CheckpointList list;
  const base::Json name = checkpoint_key(config, "folder");
  const base::Json keep = checkpoint_key(config, "keep_latest_k");
  if (keep.is_number_integer()) list.keep = keep.get<int64_t>();
  const fs::path folder = name.is_string() ? name.get<std::string>() : "checkpoint";
  const auto disk = ckpt::posix_disk();
  std::vector<ckpt::MarkedGeneration> all;
  try {
    const ckpt::Marks marks = marks_in(*disk, run / folder);
    all = ckpt::marked_generations(*disk, run / folder, marks);
    list.resume_steps =
        choose_resume(all, ckpt::ended_in_divergence(marks), ckpt::WantedMark::not_bad).steps;
  } catch (const std::exception&) {  // the folder cannot be listed
    return list;
  }
  if (all.size() > max_listed) all.resize(max_listed);
  for (const ckpt::MarkedGeneration& one : all) {
    const int64_t step = one.id.step;
    const fs::path relative = folder / ckpt::generation_name(step);
    CheckpointEntry entry{.step = step,
                          .time = time_of(run / relative / ckpt::manifest_name),
                          .folder = relative.string(),
                          .problem = {},
                          .mark = {},
                          .why = {}};
    if (one.mark) {
      entry.mark = ckpt::name_of(one.mark->mark);
      entry.why = one.mark->evidence;
    }
    try {
      const ckpt::Manifest manifest = ckpt::read_manifest(*disk, run / relative);
      for (const ckpt::FileInfo& file : manifest.files) {
        entry.bytes += file.data_bytes + file.index_bytes;
      }
      entry.problem = ckpt::missing_in(*disk, run / relative);
    } catch (const std::exception& error) {
      entry.problem = error.what();
    }
    list.entries.push_back(std::move(entry));
  }
  return list;
}

base::Json to_json(const CheckpointList& list, double now) {
  base::Json checkpoints = base::Json::array();
  for (const CheckpointEntry& entry : list.entries) {
    checkpoints.push_back(
        {{"step", entry.step},
         {"time", entry.time},
         {"bytes", entry.bytes},
         {"age_seconds", now - entry.time},
         {"folder", entry.folder},
         {"is_rollback_target", &entry == list.rollback_target()},
         {"verified", entry.problem.empty() ? base::Json(nullptr) : base::Json(false)},
         {"problem", entry.problem},
         {"mark", entry.mark},
         {"why", entry.why}});
  }
  return {{"checkpoints", std::move(checkpoints)}, {"keep", list.keep}};
}

}  // namespace trireme::board
