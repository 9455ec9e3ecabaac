// SPDX-License-Identifier: Apache-2.0
// The processes of a job that `trireme launch` has started, as another process finds them.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <vector>

namespace trireme::cli {

struct RankPids {
  std::map<int, pid_t> ranks;
  bool is_recorded = false;            // by the launcher: the job replaces single ranks
  pid_t supervisor = 0, guardian = 0;  // of the launcher; 0: it has none
  std::vector<pid_t> spares;
};
// Returns the ranks that processes.json in the run's folder lists, if one of these processes is the
// launcher that has written it, and otherwise their children that are ranks. `proc`: /proc, except
// in tests.
RankPids find_ranks(const std::filesystem::path& run_folder, const std::set<pid_t>& launchers,
                    const std::filesystem::path& proc = "/proc");

// Does it run, as any user's process? One that has ended, and is not waited for, does not.
bool is_alive(pid_t process);

struct ProcessUse {
  int64_t descriptors = 0, threads = 0, memory_bytes = 0;

  ProcessUse& operator+=(const ProcessUse&);
};
// Returns what a process holds; none if it has ended, or is not this user's.
std::optional<ProcessUse> use_of(pid_t process, const std::filesystem::path& proc = "/proc");

}  // namespace trireme::cli
