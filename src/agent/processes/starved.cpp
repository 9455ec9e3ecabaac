// SPDX-License-Identifier: Apache-2.0
#include "agent/processes/starved.h"

#include <filesystem>
#include <fstream>
#include <string>
#include <system_error>

namespace trireme::agent {
namespace {

namespace fs = std::filesystem;

// The third field of proc(5)'s stat. The name before it is in parentheses, and may contain some.
char state_of(const fs::path& thread) {
  std::ifstream in(thread / "stat");
  std::string line;
  std::getline(in, line);
  const size_t name_end = line.rfind(") ");
  return name_end == std::string::npos || name_end + 2 >= line.size() ? '?' : line[name_end + 2];
}

}  // namespace

bool has_ready_thread(pid_t process) {
  std::error_code ended;  // the process, or one of its threads: those have no state to read
  for (auto thread =
           fs::directory_iterator(fs::path("/proc") / std::to_string(process) / "task", ended);
       !ended && thread != fs::directory_iterator(); thread.increment(ended)) {
    if (state_of(thread->path()) == 'R') return true;
  }
  return false;
}

}  // namespace trireme::agent
