// SPDX-License-Identifier: Apache-2.0
#include "base/system/start_thread.h"

#include <fmt/core.h>
#include <sys/resource.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <optional>

namespace trireme::base {
namespace {

// Returns the lowest limit of tasks of this process's control group and its parents.
std::optional<int64_t> control_group_limit() {
  std::optional<int64_t> lowest;
  std::ifstream groups("/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {
    // "0::/user.slice" in version 2, "8:pids:/docker" in version 1.
    const bool is_first_version = line.find(":pids:/") != std::string::npos;
    if (!is_first_version && !line.starts_with("0::/")) continue;
    const std::string root = is_first_version ? "/sys/fs/cgroup/pids" : "/sys/fs/cgroup";
    for (std::filesystem::path group = line.substr(line.find('/'));; group = group.parent_path()) {
      std::ifstream in(root + (group / "pids.max").string());
      int64_t limit = 0;
      if (in >> limit && (!lowest || limit < *lowest)) lowest = limit;  // "max" is not a number
      if (group == group.parent_path()) break;
    }
  }
  return lowest;
}

}  // namespace

std::string thread_refusal(const std::error_code& error) {
  rlimit of_user{};
  ::getrlimit(RLIMIT_NPROC, &of_user);
  const std::optional<int64_t> of_group = control_group_limit();
  return fmt::format(
      "{}; this user may have {} processes and threads (ulimit -u), this control "
      "group {} (pids.max)",
      error.message(),
      of_user.rlim_cur == RLIM_INFINITY ? "any number of" : std::to_string(of_user.rlim_cur),
      of_group ? std::to_string(*of_group) : "any number");
}

}  // namespace trireme::base
