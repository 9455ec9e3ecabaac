// SPDX-License-Identifier: Apache-2.0
#include "device/control_groups.h"

#include <fstream>
#include <string>

namespace trireme::device {

namespace fs = std::filesystem;

std::vector<ControlGroup> control_groups(const ControlGroupFiles& files, std::string_view kind) {
  std::vector<ControlGroup> groups;
  const std::string wanted = "," + std::string(kind) + ",";
  // Lines are "0::/group" in version 2, "9:cpu,cpuacct:/group" in version 1.
  std::ifstream in(files.cgroups_of_process);
  for (std::string line; std::getline(in, line);) {
    const size_t first = line.find(':');
    const size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string kinds = line.substr(first + 1, second - first - 1);
    const bool is_unified = kinds.empty();
    if (!is_unified && ("," + kinds + ",").find(wanted) == std::string::npos) continue;
    fs::path folder = is_unified ? files.cgroup_root : files.cgroup_root / kind;
    groups.push_back({folder, is_unified});
    for (const fs::path& part : fs::path(line.substr(second + 1)).relative_path()) {
      folder /= part;
      groups.push_back({folder, is_unified});
    }
  }
  return groups;
}

}  // namespace trireme::device
