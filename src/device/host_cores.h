// SPDX-License-Identifier: Apache-2.0
// The number of host cores that this process may use, from its affinity mask (taskset, launchers
// that bind their ranks, cpusets of containers and of Slurm) and the CPU quota of its control
// groups.
#pragma once

#include <set>
#include <span>
#include <string>

#include "device/control_groups.h"

namespace trireme::device {

struct HostCores {
  std::set<int> mask;          // the processors of the affinity mask
  double quota = 0;            // CPU quota of the control groups, in cores; 0: no limit
  int machine = 1;             // processors that are online
  int count() const;           // threads that can run at a time, at least 1
  std::string source() const;  // which of these limits count(): "affinity mask", ...
};
HostCores host_cores(const ControlGroupFiles& = {});

// Returns the mask in the kernel's format: "0-3,8".
std::string mask_text(const std::set<int>& mask);
// Throws IoError if the text is not a mask.
std::set<int> mask_from(const std::string& text);

// Returns the share of cores of process `own` among the processes of one host: a core that is in
// the masks of n of them counts 1/n, and all share the quota. At least 1.
int share_of_cores(std::span<const std::set<int>> masks, size_t own, double quota);

}  // namespace trireme::device
