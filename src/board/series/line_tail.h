// SPDX-License-Identifier: Apache-2.0
// LineTail: the complete lines of a file that may still grow, each once. A file that was replaced,
// or is shorter than before, is read from its beginning. The file is never written, locked or
// mapped.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>

#include "base/system/regular_file.h"

namespace trireme::board {

class LineTail {
 public:
  // Longer lines are skipped and counted. A file with too many bytes in such lines is not read
  // further until it is replaced, and has a problem.
  explicit LineTail(std::filesystem::path path, const base::LineLimits& limits = {});

  struct Calls {
    std::function<void()> restarted;             // called before the first line of a replaced file
    std::function<void(std::string_view)> line;  // without its newline
    // Called now and then with the bytes read so far and the size of the file.
    std::function<void(int64_t, int64_t)> progress = nullptr;
  };
  // Reads the lines since the last call. Returns whether there was anything new. A file that does
  // not exist is empty.
  bool poll(const Calls& calls);

  // Where the file has been read, and the bytes before it, which prove that the file is the same.
  struct Place {
    int64_t offset = 0;
    int64_t lines = 0;     // before the offset
    int64_t too_long = 0;  // lines that were skipped
    int32_t check_bytes = 0;
    std::array<char, 64> check{};
  };
  // Returns none in the middle of a line that is too long.
  bool has_place() const { return !is_skipping_; }
  Place place() const;
  // Continues after `place` if the file still has the bytes before it. Returns whether it has.
  bool resume(const Place& place);

  const std::filesystem::path& path() const { return path_; }
  int64_t offset() const { return offset_; }
  int64_t lines() const { return lines_; }
  int64_t too_long() const { return too_long_; }
  bool exists() const { return exists_; }
  // Empty, or why the file cannot be read.
  const std::string& problem() const { return problem_; }

 private:
  bool is_same(int descriptor, uint64_t inode, int64_t size) const;
  void restart(const Calls& calls);
  void take_lines(std::string_view block, const Calls& calls);
  bool is_exhausted() const { return skipped_bytes_ > limits_.max_skipped_bytes; }

  std::filesystem::path path_;
  base::LineLimits limits_;
  int64_t offset_ = 0;  // after the last byte that was read and is not in partial_
  int64_t lines_ = 0;
  int64_t too_long_ = 0;
  uint64_t inode_ = 0;
  bool exists_ = false;
  bool is_skipping_ = false;  // within a line that is too long
  int64_t skipped_bytes_ = 0;
  std::array<char, 64> check_{};
  int32_t check_bytes_ = 0;
  std::string problem_;
};

}  // namespace trireme::board
