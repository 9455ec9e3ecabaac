// SPDX-License-Identifier: Apache-2.0
// A whole file, mapped for reading. Pages are loaded on first access, so a file may be larger than
// memory.
#pragma once

#include <sys/stat.h>

#include <cstddef>
#include <filesystem>
#include <memory>
#include <span>
#include <string>

#include "base/system/mapped_ranges.h"

namespace trireme::data {

// Any thread may read. REQUIRES: the file is not truncated or written in place meanwhile (replacing
// it by rename is safe for an open file). changed() detects such writes after the fact, and a
// truncation ends the process with a message (base/system/mapped_ranges.h). The bytes keep their
// address when the object is moved.
class MappedFile {
 public:
  // Throws IoError if `path` is not a regular file that can be read.
  explicit MappedFile(const std::filesystem::path& path);

  const std::filesystem::path& path() const { return path_; }
  std::span<const std::byte> bytes() const { return {start_.get(), start_.get_deleter().size}; }
  // Returns how the file under `path` differs from the one that was opened (written, truncated,
  // replaced or removed since), or an empty string. One system call.
  std::string changed() const;
  // Advises the system that the bytes are read once, sequentially.
  void expect_one_pass() const;

 private:
  struct Unmap {
    size_t size;
    void operator()(const std::byte* start) const noexcept;
  };

  std::filesystem::path path_;
  struct stat opened_ {};  // when it was opened
  std::unique_ptr<const std::byte, Unmap> start_;
  base::MappedRange range_;  // ends before the mapping does
};

}  // namespace trireme::data
