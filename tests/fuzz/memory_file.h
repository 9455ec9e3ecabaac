// SPDX-License-Identifier: Apache-2.0
// A file in memory, for readers that take a path.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <filesystem>
#include <string>

#include "base/check.h"
#include "readers.h"

namespace trireme::fuzz {

class MemoryFile {
 public:
  MemoryFile() : descriptor_(::memfd_create("fuzz", MFD_CLOEXEC)) {
    TRIREME_CHECK(descriptor_ >= 0, "no file in memory");
  }
  ~MemoryFile() { ::close(descriptor_); }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;

  std::filesystem::path path() const { return "/proc/self/fd/" + std::to_string(descriptor_); }
  // REQUIRES: the file is not mapped.
  void fill(Input bytes) const {
    TRIREME_CHECK(::ftruncate(descriptor_, 0) == 0, "cannot empty a file in memory");
    const ssize_t written = ::pwrite(descriptor_, bytes.data(), bytes.size(), 0);
    TRIREME_CHECK(written == static_cast<ssize_t>(bytes.size()), "wrote {} of {} bytes", written,
                  bytes.size());
  }

 private:
  int descriptor_;
};

}  // namespace trireme::fuzz
