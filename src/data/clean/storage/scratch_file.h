// SPDX-License-Identifier: Apache-2.0
// A file without a name, for data that does not fit in memory. The system removes it when it is
// closed, also if the process is killed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "base/system/descriptor.h"

namespace trireme::data {

// Appended to by one thread. Failures are IoErrors that name the folder and the system's reason.
class ScratchFile {
 public:
  // `purpose` completes "the work file of ..." in messages.
  ScratchFile(const std::filesystem::path& folder, std::string purpose);

  void append(std::span<const std::byte> bytes);
  // Writes what is buffered, so that it can be read.
  void flush();
  // Writes at any offset, also behind the end. REQUIRES: nothing is buffered.
  void write_at(int64_t offset, std::span<const std::byte> bytes);
  // Usable from any thread. REQUIRES: the range was written and flushed.
  void read_at(int64_t offset, std::span<std::byte> out) const;

  int64_t bytes() const { return bytes_ + static_cast<int64_t>(pending_.size()); }

 private:
  std::filesystem::path folder_;
  std::string purpose_;
  base::Descriptor descriptor_;
  std::vector<std::byte> pending_;
  int64_t bytes_ = 0;  // in the file
};

}  // namespace trireme::data
