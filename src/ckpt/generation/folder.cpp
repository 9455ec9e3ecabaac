// SPDX-License-Identifier: Apache-2.0
#include "ckpt/generation/folder.h"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <functional>

#include "base/error.h"
#include "ckpt/marks/health.h"
#include "ckpt/marks/mark_file.h"

namespace trireme::ckpt {
namespace {

constexpr std::string_view step_prefix = "step-";

// Parses digits without a sign.
std::optional<int64_t> number_from(std::string_view text) {
  int64_t value = 0;
  const auto read = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || text[0] == '-' || read.ec != std::errc() ||
      read.ptr != text.data() + text.size()) {
    return {};
  }
  return value;
}

// "step-00000020.old-3" for ".old-".
bool has_mark(std::string_view name, std::string_view mark) {
  const size_t at = name.find(mark);
  return at != std::string_view::npos && step_from_name(name.substr(0, at)) &&
         number_from(name.substr(at + mark.size()));
}

// Returns the checkpoints of `run`, newest first. One whose manifest cannot be read names no run,
// and belongs to any.
std::vector<StoredGeneration> generations_of_run(Disk& disk, const std::filesystem::path& root,
                                                 std::string_view run) {
  const Marks marks = read_marks(disk, root);
  std::vector<StoredGeneration> all;
  for (const int64_t step : committed_steps(disk, root)) {
    StoredGeneration one{.step = step};
    try {
      const Manifest manifest = read_manifest(disk, root / generation_name(step));
      const Writer& writer = manifest.writer;
      if (!run.empty() && !writer.run.empty() && writer.run != run) continue;
      const auto mark = mark_of({.step = step, .epoch = writer.epoch}, marks);
      if (mark) one.mark = mark->mark;
      for (const FileInfo& file : manifest.files) {
        expect_files(disk, root / generation_name(step), file);
      }
    } catch (const base::Error&) {
      one.is_complete = false;  // loading it reports the damage
    }
    all.push_back(one);
  }
  return all;
}

// Returns false and appends a problem if the entry still exists.
bool try_to_remove(Disk& disk, const std::filesystem::path& folder,
                   std::vector<std::string>& problems) {
  try {
    remove_all(disk, folder);
    return true;
  } catch (const base::IoError& error) {
    problems.emplace_back(error.what());
    return false;
  }
}

}  // namespace

std::string generation_name(int64_t step) { return fmt::format("{}{:08}", step_prefix, step); }

std::optional<int64_t> step_from_name(std::string_view name) {
  if (!name.starts_with(step_prefix)) return {};
  const std::optional<int64_t> step = number_from(name.substr(step_prefix.size()));
  if (!step || generation_name(*step) != name) return {};
  return step;
}

std::string draft_start(int64_t step, const Writer& writer) {
  const std::string start = generation_name(step) + draft_mark;
  return writer.run.empty() ? start : fmt::format("{}{}-{}-", start, writer.run, writer.epoch);
}

std::optional<Writer> writer_of_draft(std::string_view name) {
  const std::string_view mark = draft_mark;
  const size_t at = name.find(mark);
  if (at == std::string_view::npos || !step_from_name(name.substr(0, at))) return {};
  const std::string_view rest = name.substr(at + mark.size());
  if (number_from(rest)) return Writer{};
  const size_t first = rest.find('-');
  const size_t last = rest.rfind('-');
  if (first == std::string_view::npos || last == first || !is_run_id(rest.substr(0, first))) {
    return {};
  }
  const auto epoch = number_from(rest.substr(first + 1, last - first - 1));
  if (!epoch || !number_from(rest.substr(last + 1))) return {};
  return Writer{.run = std::string(rest.substr(0, first)), .epoch = *epoch};
}

std::string free_name(Disk& disk, const std::filesystem::path& folder, const std::string& start) {
  int64_t next = 0;
  for (const DiskEntry& entry : disk.list(folder)) {
    if (!entry.name.starts_with(start)) continue;
    const std::optional<int64_t> taken =
        number_from(std::string_view(entry.name).substr(start.size()));
    if (taken) next = std::max(next, *taken + 1);
  }
  return start + std::to_string(next);
}

std::vector<int64_t> committed_steps(Disk& disk, const std::filesystem::path& root) {
  std::vector<int64_t> steps;
  if (!disk.exists(root)) return steps;
  for (const DiskEntry& entry : disk.list(root)) {
    if (const auto step = step_from_name(entry.name)) steps.push_back(*step);
  }
  std::ranges::sort(steps, std::greater<>());
  return steps;
}

Manifest read_manifest(Disk& disk, const std::filesystem::path& generation) {
  const auto path = generation / manifest_name;
  Manifest manifest = parse_manifest(read_text(disk, path, max_manifest_bytes), path.string());
  const std::optional<int64_t> step = step_from_name(generation.filename().string());
  if (step && *step != manifest.step) {
    throw base::IoError(
        fmt::format("{} is of step {}: the folder was renamed, or its files come from another",
                    path.string(), manifest.step));
  }
  return manifest;
}

void expect_files(Disk& disk, const std::filesystem::path& generation, const FileInfo& file) {
  for (const auto& [name, bytes] : {std::pair(data_name(file.rank), file.data_bytes),
                                    std::pair(index_name(file.rank), file.index_bytes)}) {
    const int64_t found = disk.open(generation / name)->size();
    if (found == bytes) continue;
    throw base::IoError(
        fmt::format("{} has {} bytes, the manifest says {}: it was cut off, not "
                    "copied whole, or replaced",
                    (generation / name).string(), found, bytes));
  }
}

std::string missing_in(Disk& disk, const std::filesystem::path& generation) {
  try {
    for (const FileInfo& file : read_manifest(disk, generation).files) {
      expect_files(disk, generation, file);
    }
  } catch (const base::Error& error) {
    return error.what();
  }
  return "";
}

std::vector<int64_t> remove_old(Disk& disk, const std::filesystem::path& root,
                                const Retention& retention, std::string_view run,
                                const Guard& guard) {
  std::vector<int64_t> removed;
  std::vector<std::filesystem::path> nameless;
  const std::vector<StoredGeneration> all = generations_of_run(disk, root, run);
  const std::set<int64_t> kept = kept_steps(all, retention);
  for (const auto& [step, is_complete, mark] : all) {
    if (kept.contains(step)) continue;
    const std::string name = generation_name(step);
    const auto rename = [&] {
      nameless.push_back(root / free_name(disk, root, name + removed_mark));
      disk.rename(root / name, nameless.back());
    };
    if (guard) {
      guard(rename);
    } else {
      rename();
    }
    removed.push_back(step);
  }
  if (nameless.empty()) return removed;
  disk.sync_folder(root);
  std::vector<std::string> problems;
  for (const auto& folder : nameless) try_to_remove(disk, folder, problems);
  if (!problems.empty()) throw base::IoError(fmt::format("{}", fmt::join(problems, "; ")));
  return removed;
}

Leftovers remove_leftovers(Disk& disk, const std::filesystem::path& root,
                           const std::vector<std::string>& runs) {
  Leftovers leftovers;
  if (!disk.exists(root)) return leftovers;
  std::vector<std::string> names;
  for (const DiskEntry& entry : disk.list(root)) {
    if (!entry.is_folder && !entry.is_link) continue;
    const std::optional<Writer> writer = writer_of_draft(entry.name);
    const bool is_own = writer && (writer->run.empty() || std::ranges::count(runs, writer->run));
    if (is_own || has_mark(entry.name, removed_mark)) names.push_back(entry.name);
  }
  if (names.empty()) return leftovers;
  // After a power cut, a folder that lost the name of a checkpoint must not reappear under it
  // without its files.
  disk.sync_folder(root);
  for (const std::string& name : names) {
    if (try_to_remove(disk, root / name, leftovers.problems)) leftovers.removed.push_back(name);
  }
  return leftovers;
}

std::vector<std::string> set_aside_newer(Disk& disk, const std::filesystem::path& root,
                                         int64_t step) {
  std::vector<std::string> names;
  for (const int64_t newer : committed_steps(disk, root)) {
    if (newer <= step) break;
    const std::string name = generation_name(newer);
    names.push_back(free_name(disk, root, name + aside_mark));
    disk.rename(root / name, root / names.back());
  }
  if (!names.empty()) disk.sync_folder(root);
  return names;
}

}  // namespace trireme::ckpt
