// SPDX-License-Identifier: Apache-2.0
// PREFIX.rejected.jsonl: one line for every document that a build rejected (docs/formats.md).
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "data/sources/document.h"

namespace trireme::data {

struct RejectedDocument {
  Origin origin;  // in a CorpusBlock, its line counts from the start of the block
  Rejection rejection;
};

// Returns the line of the file, with its end.
std::string rejected_line(const RejectedDocument&);

// A line of the file, for messages.
struct RejectedLine {
  std::string place;  // "a.jsonl:3", "a.tar: 0001"
  std::string reason, detail;
};

// Reads the first lines, at most `count`. Returns none if the file cannot be read.
std::vector<RejectedLine> first_rejected(const std::filesystem::path& file, size_t count);

}  // namespace trireme::data
