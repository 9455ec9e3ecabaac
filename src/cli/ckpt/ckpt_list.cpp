// SPDX-License-Identifier: Apache-2.0
// trireme ckpt list: lists the checkpoints of a folder.
#include <fmt/chrono.h>

#include <chrono>

#include "base/error.h"
#include "base/text/json.h"
#include "ckpt/disk/posix_disk.h"
#include "ckpt/generation/folder.h"
#include "ckpt/marks/mark_file.h"
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
  std::optional<ckpt::MarkLine> mark;
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

Row row_of(ckpt::Disk& disk, const fs::path& root, const ckpt::MarkedGeneration& one) {
  const fs::path folder = root / ckpt::generation_name(one.id.step);
  Row row{.step = one.id.step,
          .saved_at = time_of(folder / ckpt::manifest_name),
          .layout = {},
          .problem = {},
          .mark = one.mark};
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

std::string mark_name(const Row& row) {
  return row.mark ? std::string(ckpt::name_of(row.mark->mark)) : "";
}

// A line below the row; empty: good marks need no reason.
std::string reason_line(const Row& row) {
  if (!row.mark || row.mark->mark == ckpt::Mark::good) return "";
  return fmt::format("{:>10}  {} ({}): {}\n", "", mark_name(row), row.mark->detector,
                     row.mark->evidence);
}

int run_ckpt_list(const Args& args) {
  const auto disk = ckpt::posix_disk();
  const CheckpointPlace place = checkpoint_place(args.text("folder"));
  std::vector<Row> rows;
  const ckpt::Marks marks = ckpt::read_marks(*disk, place.root);
  for (const auto& one : ckpt::marked_generations(*disk, place.root, marks)) {
    if (!place.step || *place.step == one.id.step) rows.push_back(row_of(*disk, place.root, one));
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
                      {"problem", row.problem},
                      {"mark", row.mark ? base::Json(mark_name(row)) : base::Json()},
                      {"marked_by", row.mark ? row.mark->detector : ""},
                      {"why", row.mark ? row.mark->evidence : ""}});
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
  fmt::print("{:>10}  {:<20}  {:>11}  {:<7}  {}\n", "step", "saved (UTC)", "size", "mark",
             "layout");
  for (const Row& row : rows) {
    fmt::print("{:>10}  {:<20}  {:>11}  {:<7}  {}\n{}", row.step,
               time_text(row.saved_at, "{:%Y-%m-%d %H:%M:%S}"),
               row.problem.empty() ? obs::bytes_text(row.bytes) : "", mark_name(row),
               row.problem.empty() ? row.layout : "cannot be read: " + row.problem,
               reason_line(row));
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
              "byte.\nThe mark is good, suspect or bad (`ckpt mark`); checkpoints without one are "
              "not known to be\neither.\n\nExamples:\n"
              "  trireme ckpt list runs/saved\n"
              "  trireme ckpt list runs/saved/checkpoint --json",
          .options = {{.name = "folder",
                       .help = "Run's folder, or its checkpoint folder",
                       .is_required = true}},
          .run = run_ckpt_list};
}

}  // namespace trireme::cli
