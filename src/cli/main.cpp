// SPDX-License-Identifier: Apache-2.0
#include <unistd.h>

#include <array>
#include <csignal>

#include "base/system/mapped_ranges.h"
#include "cli/shell/args.h"
#include "cli/shell/environment.h"
#include "cli/verbs.h"

namespace {

// Reports a mapped file that was truncated or whose device failed: that is no bug and there is no
// stack to unwind, so the process names the file and exits as after any other error. Every other
// SIGBUS keeps the default action.
void on_bus_error(int number, siginfo_t* info, void* /*context*/) {
  const bool is_fault = info->si_code > 0;  // not sent by a process
  if (is_fault) {
    std::array<char, 4096> text;
    const size_t size = trireme::base::describe_mapping_fault(info->si_addr, text);
    if (size > 0) {
      [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, text.data(), size);
      ::_exit(1);
    }
  }
  std::signal(number, SIG_DFL);
  if (!is_fault) std::raise(number);  // else the access is repeated
}

void name_lost_mappings() {
  struct sigaction action {};
  action.sa_sigaction = on_bus_error;
  action.sa_flags = SA_SIGINFO;
  ::sigaction(SIGBUS, &action, nullptr);
}

}  // namespace

int main(int argc, char** argv) {
  name_lost_mappings();
  trireme::cli::raise_descriptor_limit();
  return trireme::cli::run_command(trireme::cli::all_commands(), argc, argv);
}
