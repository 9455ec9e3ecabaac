// SPDX-License-Identifier: Apache-2.0
// How many cores of the host this process may use: its affinity mask (taskset, launchers that bind
// their ranks, cpusets of containers and of Slurm) and the CPU quota of its control groups.
#pragma once

#include <set>
#include <span>
#include <string>

#include "device/control_groups.h"

namespace trireme::device {

struct HostCores {
  std::set<int> mask;          // the processors of the affinity mask
  double quota = 0;            // cores' worth of time that the control groups allow; 0: no limit
  int machine = 1;             // processors that are online
  int count() const;           // threads that can run at a time, at least 1
  std::string source() const;  // which of these decides: "affinity mask", ...
};
HostCores host_cores(const ControlGroupFiles& = {});

// "0-3,8", as the kernel writes masks.
std::string mask_text(const std::set<int>& mask);
// Throws IoError if the text is not one.
std::set<int> mask_from(const std::string& text);

// Returns the cores of the process number `own` among processes of one host: a core that is in the
// masks of n of them counts 1/n, and the quota is shared by all. At least 1.
int share_of_cores(std::span<const std::set<int>> masks, size_t own, double quota);

}  // namespace trireme::device
