// SPDX-License-Identifier: Apache-2.0
// A whole file, mapped for reading. Pages come in when they are touched, so a file may be larger
// than the memory.
#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>
#include <span>

namespace trireme::data {

// Any thread may read. REQUIRES: the file is not truncated or written in place meanwhile (replacing
// it by rename is fine). The bytes stay at their address when the object is moved.
class MappedFile {
 public:
  // Throws IoError if `path` is not a regular file that can be read.
  explicit MappedFile(const std::filesystem::path& path);

  const std::filesystem::path& path() const { return path_; }
  std::span<const std::byte> bytes() const { return {start_.get(), start_.get_deleter().size}; }
  // Tells the system that the bytes are read once, from the front.
  void expect_one_pass() const;

 private:
  struct Unmap {
    size_t size;
    void operator()(const std::byte* start) const noexcept;
  };

  std::filesystem::path path_;
  std::unique_ptr<const std::byte, Unmap> start_;
};

}  // namespace trireme::data
