// SPDX-License-Identifier: Apache-2.0
// The disk of this machine. Transfers that are aligned to page_bytes (offset, length and memory) go
// around the page cache (O_DIRECT) where the file system can; all others, and all where it cannot,
// through it.
#pragma once

#include "ckpt/disk/disk.h"

namespace trireme::ckpt {

struct PosixDiskOptions {
  bool direct = true;  // false: always through the page cache
};

std::unique_ptr<Disk> posix_disk(const PosixDiskOptions& = {});

}  // namespace trireme::ckpt
