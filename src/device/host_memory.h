// SPDX-License-Identifier: Apache-2.0
// How much memory of the host is still to be had.
#pragma once

#include <cstdint>
#include <filesystem>

#include "device/control_groups.h"

namespace trireme::device {

// Where Linux tells of it. Tests put files of their own in these places.
struct HostMemoryFiles {
  std::filesystem::path meminfo = "/proc/meminfo";
  ControlGroupFiles groups;
};

// Bytes that processes like this one can take together before the kernel refuses or kills: what the
// machine has available, or what the limits of the process's control groups (containers, Slurm
// jobs) leave, whichever is less. File cache counts as available. The highest int64 where nothing
// is known.
int64_t host_memory_available(const HostMemoryFiles& = {});

}  // namespace trireme::device
