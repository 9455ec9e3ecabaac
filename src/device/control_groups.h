// SPDX-License-Identifier: Apache-2.0
// The control groups (containers, Slurm jobs) whose limits apply to this process.
#pragma once

#include <filesystem>
#include <string_view>
#include <vector>

namespace trireme::device {

// The files in which Linux lists them. Tests use other files.
struct ControlGroupFiles {
  std::filesystem::path cgroups_of_process = "/proc/self/cgroup";
  std::filesystem::path cgroup_root = "/sys/fs/cgroup";
};

struct ControlGroup {
  std::filesystem::path folder;
  bool is_unified = true;  // version 2, whose files have other names than version 1
};

// Returns the groups that control `kind` ("cpu", "memory"): the process's own and those that it is
// in, up to the root. A folder need not exist.
std::vector<ControlGroup> control_groups(const ControlGroupFiles& files, std::string_view kind);

}  // namespace trireme::device
