// SPDX-License-Identifier: Apache-2.0
// trireme ckpt list: lists the checkpoints of a folder.
#include <fmt/chrono.h>

#include <chrono>

#include "base/error.h"
#include "base/text/json.h"
#include "ckpt/disk/posix_disk.h"
#include "ckpt/generation/folder.h"
#include "cli/ckpt/ckpt_place.h"
#include "cli/ckpt/ckpt_verbs.h"
#include "obs/terminal/number_text.h"

namespace trireme::cli {
namespace {

namespace fs = std::filesystem;

struct Row {
  int64_t step = 0;
  std::time_t saved_at = 0;  // time of the manifest; 0: there is none
  int64_t bytes = 0;
  size_t ranks = 0;
  std::string layout, problem;
};

// A checkpoint is committed right after its manifest is written.
std::time_t time_of(const fs::path& file) {
  std::error_code error;
  const auto time = fs::last_write_time(file, error);
  if (error) return 0;
  return std::chrono::system_clock::to_time_t(
      std::chrono::time_point_cast<std::chrono::system_clock::duration>(
          std::chrono::file_clock::to_sys(time)));
}

Row row_of(ckpt::Disk& disk, const fs::path& root, int64_t step) {
  const fs::path folder = root / ckpt::generation_name(step);
  Row row{.step = step, .saved_at = time_of(folder / ckpt::manifest_name)};
  try {
    const ckpt::Generation generation = ckpt::Generation::open(disk, folder);
    for (const ckpt::FileInfo& file : generation.manifest().files) {
      row.bytes += file.data_bytes + file.index_bytes;
    }
    row.ranks = generation.manifest().files.size();
    row.layout = layout_words(generation.manifest());
  } catch (const base::Error& error) {
    row.problem = error.what();
  }
  return row;
}

// Returns the names of other folders: checkpoints that were moved aside, or are not complete.
std::vector<std::string> others(ckpt::Disk& disk, const fs::path& root) {
  std::vector<std::string> names;
  for (const ckpt::DiskEntry& entry : disk.list(root)) {
    if ((entry.is_folder || entry.is_link) && !ckpt::step_from_name(entry.name))
      names.push_back(entry.name);
  }
  return names;
}

std::string time_text(std::time_t time, const char* format) {
  return time == 0 ? "" : fmt::format(fmt::runtime(format), fmt::gmtime(time));
}

int run_ckpt_list(const Args& args) {
  const auto disk = ckpt::posix_disk();
  const CheckpointPlace place = checkpoint_place(args.text("folder"));
  std::vector<Row> rows;
  for (const int64_t step : ckpt::committed_steps(*disk, place.root)) {
    if (!place.step || *place.step == step) rows.push_back(row_of(*disk, place.root, step));
  }
  const std::vector<std::string> rest = others(*disk, place.root);
  if (args.wants_json()) {
    base::Json list = base::Json::array();
    for (const Row& row : rows) {
      list.push_back({{"step", row.step},
                      {"saved_at", time_text(row.saved_at, "{:%Y-%m-%dT%H:%M:%SZ}")},
                      {"bytes", row.bytes},
                      {"ranks", row.ranks},
                      {"layout", row.layout},
                      {"problem", row.problem}});
    }
    fmt::print("{}\n",
               base::Json{{"ok", true},
                          {"folder", place.root.string()},
                          {"checkpoints", list},
                          {"generations", std::move(list)},  // the old name of "checkpoints"
                          {"others", rest}}
                   .dump());
    return 0;
  }
  fmt::print("{:>10}  {:<20}  {:>11}  {}\n", "step", "saved (UTC)", "size", "layout");
  for (const Row& row : rows) {
    fmt::print("{:>10}  {:<20}  {:>11}  {}\n", row.step,
               time_text(row.saved_at, "{:%Y-%m-%d %H:%M:%S}"),
               row.problem.empty() ? obs::bytes_text(row.bytes) : "",
               row.problem.empty() ? row.layout : "cannot be read: " + row.problem);
  }
  for (const std::string& name : rest) {
    fmt::print("also found: {} ({})\n", name,
               name.find(ckpt::aside_mark) != std::string::npos
                   ? "moved aside by a run that was resumed from an earlier step"
                   : "not a complete checkpoint");
  }
  return 0;
}

}  // namespace

Verb ckpt_list_verb() {
  return {.name = "ckpt list",
          .summary = "List the checkpoints of a run, newest first",
          .details =
              "Checks manifests, indexes and sizes of files; `ckpt verify` reads every "
              "byte.\n\nExamples:\n"
              "  trireme ckpt list runs/saved\n"
              "  trireme ckpt list runs/saved/checkpoint --json",
          .options = {{.name = "folder",
                       .help = "Run's folder, or its checkpoint folder",
                       .is_required = true}},
          .run = run_ckpt_list};
}

}  // namespace trireme::cli
