// SPDX-License-Identifier: Apache-2.0
// Reads files of folders that anyone may have written. Only regular files are read, links to them
// included: opening a named pipe would wait, and a device has no end. What is read is bounded, so
// that a damaged or hostile file costs little time and memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "base/system/descriptor.h"

namespace trireme::base {

struct RegularFile {
  Descriptor descriptor{-1};
  int64_t bytes = 0;    // when it was opened
  std::string problem;  // empty, or "is missing", "is no regular file", "cannot be read: ..."
  bool is_missing = false;
};
RegularFile open_regular_file(const std::filesystem::path& path);

// Returns the content, or why it cannot be had: as above, or that the file is larger.
Result<std::string> read_regular_file(const std::filesystem::path& path, int64_t max_bytes);

struct LineLimits {
  size_t max_line_bytes = size_t{1} << 20;        // longer lines are left out
  int64_t max_skipped_bytes = int64_t{64} << 20;  // in such lines; the rest is not read
};
// Returns the note on a file whose lines exceed the limits.
std::string skipped_text(const LineLimits& limits);

struct LinesRead {
  std::string problem;  // empty, or why the file, or the rest of it, was not read
  bool is_missing = false;
  int64_t too_long = 0;  // lines that were left out
};
// Calls `use` for every line that ends with a newline, without the newline.
LinesRead read_lines(const std::filesystem::path& path, const LineLimits& limits,
                     const std::function<void(std::string_view)>& use);

}  // namespace trireme::base
