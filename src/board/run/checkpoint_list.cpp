// SPDX-License-Identifier: Apache-2.0
#include "board/run/checkpoint_list.h"

#include <sys/stat.h>

#include <exception>

#include "base/text/json.h"
#include "ckpt/disk/posix_disk.h"
#include "ckpt/generation/folder.h"

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

base::Json checkpoint_key(const base::Json& config, const char* key) {
  if (!config.is_object() || !config.contains("checkpoint")) return nullptr;
  const base::Json& section = config["checkpoint"];
  return section.is_object() && section.contains(key) ? section[key] : base::Json(nullptr);
}

}  // namespace

const CheckpointEntry* CheckpointList::rollback_target() const {
  for (const CheckpointEntry& entry : entries) {
    if (entry.problem.empty()) return &entry;
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
  std::vector<int64_t> steps;
  try {
    steps = ckpt::committed_steps(*disk, run / folder);
  } catch (const std::exception&) {  // the folder cannot be listed
    return list;
  }
  if (steps.size() > max_listed) steps.resize(max_listed);
  for (const int64_t step : steps) {
    const fs::path relative = folder / ckpt::generation_name(step);
    CheckpointEntry entry{.step = step,
                          .time = time_of(run / relative / ckpt::manifest_name),
                          .folder = relative.string()};
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
         {"problem", entry.problem}});
  }
  return {{"checkpoints", std::move(checkpoints)}, {"keep", list.keep}};
}

}  // namespace trireme::board
