// SPDX-License-Identifier: Apache-2.0
// The disk of this machine. Transfers aligned to page_bytes (offset, length and memory) bypass the
// page cache (O_DIRECT) if the file system supports it; all others use the page cache.
#pragma once

#include "ckpt/disk/disk.h"

namespace trireme::ckpt {

struct PosixDiskOptions {
  bool direct = true;  // false: always through the page cache
};

std::unique_ptr<Disk> posix_disk(const PosixDiskOptions& = {});

}  // namespace trireme::ckpt
