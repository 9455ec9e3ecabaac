// SPDX-License-Identifier: Apache-2.0
// marks.jsonl in a folder of checkpoints: read as a whole, and appended to line by line. The run
// that owns the folder writes to it, and `trireme ckpt mark`.
#pragma once

#include <filesystem>
#include <vector>

#include "ckpt/disk/disk.h"
#include "ckpt/marks/marks.h"

namespace trireme::ckpt {

constexpr const char* marks_name = "marks.jsonl";
constexpr int64_t max_marks_bytes = int64_t{1} << 26;

// Returns no lines if there is no file. Throws IoError if it cannot be read or a line is damaged.
Marks read_marks(Disk&, const std::filesystem::path& root);

// Appends lines, after removing an incomplete last one, and returns when they are on the disk.
// Processes that append at the same time wait for each other. Throws IoError.
void add_marks(const std::filesystem::path& root, const Marks& lines);

// A checkpoint of a folder, as far as marks are concerned.
struct MarkedGeneration {
  GenerationId id;               // epoch -1: its manifest cannot be read
  std::optional<MarkLine> mark;  // that counts
  bool is(Mark wanted) const { return mark && mark->mark == wanted; }
};
// Returns all checkpoints with their final name, newest first. Manifests are read, data is not.
std::vector<MarkedGeneration> marked_generations(Disk&, const std::filesystem::path& root,
                                                 const Marks&);

}  // namespace trireme::ckpt
