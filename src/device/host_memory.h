// SPDX-License-Identifier: Apache-2.0
// The host memory that is still available.
#pragma once

#include <cstdint>
#include <filesystem>

#include "device/control_groups.h"

namespace trireme::device {

// The files in which Linux reports it. Tests use other files.
struct HostMemoryFiles {
  std::filesystem::path meminfo = "/proc/meminfo";
  ControlGroupFiles groups;
};

// Returns the bytes that can still be allocated before the kernel refuses or kills: the memory
// available on the machine, or under the limits of the process's control groups (containers, Slurm
// jobs), whichever is less. File cache counts as available. Returns the highest int64 if nothing is
// known.
int64_t host_memory_available(const HostMemoryFiles& = {});

}  // namespace trireme::device
