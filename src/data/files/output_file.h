// SPDX-License-Identifier: Apache-2.0
// A file that appears complete or not at all: it is written beside its target under a temporary
// name and renamed at the end.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <vector>

#include "base/system/descriptor.h"

namespace trireme::data {

// Used from one thread. Every failure is an IoError that names the file and the system's reason.
class OutputFile {
 public:
  // Opens the temporary file. Throws if `path` exists and is not a regular file.
  explicit OutputFile(const std::filesystem::path& path);
  ~OutputFile();  // removes the temporary file unless it was renamed
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  const std::filesystem::path& path() const { return path_; }
  int64_t bytes() const { return bytes_; }  // appended so far

  void append(std::span<const std::byte> bytes);
  // Overwrites or reads back appended bytes. REQUIRES: [offset, offset + size) was appended.
  void write_at(int64_t offset, std::span<const std::byte> bytes);
  void read_at(int64_t offset, std::span<std::byte> out);

  // Syncs to disk, still under the temporary name.
  void sync();
  // Renames into place, replacing an existing file. REQUIRES: sync() was called after the last
  // write.
  void rename();

 private:
  void flush();
  void write(int64_t offset, std::span<const std::byte> bytes);

  std::filesystem::path path_, temporary_;
  base::Descriptor descriptor_;
  std::vector<std::byte> pending_;  // appended, not yet written
  int64_t bytes_ = 0;
  bool synced_ = false, renamed_ = false;
};

}  // namespace trireme::data
