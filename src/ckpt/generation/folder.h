// SPDX-License-Identifier: Apache-2.0
// The checkpoint folder: which names in it mean what, and how generations leave it. A generation is
// never removed before a newer one is durable.
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

namespace trireme::ckpt {

// After a generation's name: being written, by a run and epoch (docs/formats.md) and the number of
// the attempt; being removed; left alone.
constexpr const char* draft_mark = ".tmp-";
constexpr const char* removed_mark = ".old-";
constexpr const char* aside_mark = ".aside-";

// Calls what it is given if this writer may still change the folder; else throws Fenced.
using Guard = std::function<void(const std::function<void()>&)>;

std::string generation_name(int64_t step);  // "step-00000020"
// Nothing unless `name` is what generation_name() gives.
std::optional<int64_t> step_from_name(std::string_view name);

// What draft names of this writer begin with: "step-00000020.tmp-", the run, "-", the epoch, "-". A
// writer without a run has neither.
std::string draft_start(int64_t step, const Writer&);
// The writer of a draft by this name; nothing if it is not the name of a draft.
std::optional<Writer> writer_of_draft(std::string_view name);

// `start` followed by the smallest number that no name in the folder has after it, nor a larger
// one.
std::string free_name(Disk&, const std::filesystem::path& folder, const std::string& start);

// Steps of all that have the final name of a generation, whole or not, newest first. None if there
// is no such folder.
std::vector<int64_t> committed_steps(Disk&, const std::filesystem::path& root);

// The manifest of a generation; throws IoError if it is missing, damaged, or of another step than
// the folder's name says; a copy may have any other name.
Manifest read_manifest(Disk&, const std::filesystem::path& generation);
// Throws IoError unless both files of the rank have the size that the manifest says.
void expect_files(Disk&, const std::filesystem::path& generation, const FileInfo&);
// What these two say; empty if nothing is wrong. Cheap: indexes and data are not read.
std::string missing_in(Disk&, const std::filesystem::path& generation);

// Keeps the newest `keep` generations with nothing missing_in() them, and all newer ones; removes
// older ones. Generations of another run than `run` are left alone and not counted; those that name
// no run belong to any. A generation loses its name, durably, before the first of its files is
// removed; of one that is a link the link is removed, not what it points to. Returns the steps that
// were removed. Throws IoError at the end if something could not be removed. REQUIRES: keep >= 1;
// `run` is the only one of its name that saves into this folder. `guard` is called around the
// renames alone.
std::vector<int64_t> remove_old(Disk&, const std::filesystem::path& root, int64_t keep,
                                std::string_view run = "", const Guard& guard = {});

struct Leftovers {
  std::vector<std::string> removed;   // names
  std::vector<std::string> problems;  // one for each that is still there, with path and reason
};
// Removes what remove_old() began to remove, and drafts that were never committed: those of `runs`
// and those that name no run; of a link with such a name, the link. What cannot be removed stays
// and only takes space. REQUIRES: no draft of these runs is being written: call it before the first
// begin_generation() of a run.
Leftovers remove_leftovers(Disk&, const std::filesystem::path& root,
                           const std::vector<std::string>& runs = {});

// For a run that goes on from `step` (-1: from the start) while newer generations exist, damaged
// ones or those of a future that it leaves: they get names that loading and remove_old() do not
// look at, durably. Their bytes stay; removing them is left to the user. Returns the new names.
std::vector<std::string> set_aside_newer(Disk&, const std::filesystem::path& root, int64_t step);

}  // namespace trireme::ckpt
