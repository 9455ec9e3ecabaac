// SPDX-License-Identifier: Apache-2.0
// The checkpoint folder: the meaning of its names, and the removal of checkpoints. No checkpoint is
// removed before a newer one is durable.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ckpt/disk/disk.h"
#include "ckpt/generation/format.h"
#include "ckpt/marks/retention.h"

namespace trireme::ckpt {

// Suffixes of a checkpoint's name: a draft being written (with run, epoch and number of the
// attempt, docs/formats.md), a checkpoint being removed, and one that is left alone.
constexpr const char* draft_mark = ".tmp-";
constexpr const char* removed_mark = ".old-";
constexpr const char* aside_mark = ".aside-";

// Calls its argument if this writer may still change the folder; otherwise throws Fenced.
using Guard = std::function<void(const std::function<void()>&)>;

std::string generation_name(int64_t step);  // "step-00000020"
// Returns nothing unless `name` has the form of generation_name().
std::optional<int64_t> step_from_name(std::string_view name);

// Returns the prefix of this writer's draft names: "step-00000020.tmp-", the run, "-", the epoch,
// "-". A writer without a run has neither.
std::string draft_start(int64_t step, const Writer&);
// Returns the writer of a draft with this name, or nothing if it is not the name of a draft.
std::optional<Writer> writer_of_draft(std::string_view name);

// Returns `start` followed by the smallest number greater than every number that follows it in the
// folder.
std::string free_name(Disk&, const std::filesystem::path& folder, const std::string& start);

// Returns the steps of all entries with the final name of a checkpoint, intact or not, newest
// first; an empty list if the folder does not exist.
std::vector<int64_t> committed_steps(Disk&, const std::filesystem::path& root);

// Returns the manifest of a checkpoint. Throws IoError if it is missing, damaged, or belongs to
// another step than the folder's name; a copy may have any other name.
Manifest read_manifest(Disk&, const std::filesystem::path& generation);
// Throws IoError unless both files of the rank have the size that the manifest states.
void expect_files(Disk&, const std::filesystem::path& generation, const FileInfo&);
// Returns the message of either check, or an empty string. Cheap: indexes and data are not read.
std::string missing_in(Disk&, const std::filesystem::path& generation);

// Removes the checkpoints that are not among kept_steps() (ckpt/marks/retention.h), by the marks of
// the folder.
//
// - Checkpoints of another run than `run` are left alone and not counted; those without a run
// belong to any run.
// - A checkpoint durably loses its name before the first of its files is removed. If it is a link,
// the link is removed, not its target.
// - `guard` is called around the renames only.
//
// Returns the removed steps. Throws IoError at the end if something could not be removed, and at
// once, before anything is removed, if the marks cannot be read. REQUIRES: no other run with this
// name saves into this folder.
std::vector<int64_t> remove_old(Disk&, const std::filesystem::path& root, const Retention&,
                                std::string_view run = "", const Guard& guard = {});

struct Leftovers {
  std::vector<std::string> removed;   // names
  std::vector<std::string> problems;  // one for each that still exists, with path and reason
};
// Removes what remove_old() left unfinished, and drafts that were never committed: those of `runs`
// and those without a run. If such an entry is a link, the link is removed. What cannot be removed
// stays and only takes space. REQUIRES: no draft of these runs is being written; call it before the
// run's first begin_generation().
Leftovers remove_leftovers(Disk&, const std::filesystem::path& root,
                           const std::vector<std::string>& runs = {});

// For a run that resumes from `step` (-1: from the start) while newer checkpoints exist (damaged,
// or from an abandoned continuation): durably renames them so that loading and remove_old() ignore
// them. Their bytes stay; the user may remove them. Returns the new names.
std::vector<std::string> set_aside_newer(Disk&, const std::filesystem::path& root, int64_t step);

}  // namespace trireme::ckpt
