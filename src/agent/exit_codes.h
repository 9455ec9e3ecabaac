// SPDX-License-Identifier: Apache-2.0
// Exit codes of the program: one table, from which docs/stopping.md and the manual page are made.
#pragma once

#include <span>
#include <string>

namespace trireme::agent {

constexpr int exit_done = 0;
constexpr int exit_failed = 1;
constexpr int exit_bad_call = 2;
constexpr int exit_stopped = 75;
constexpr int exit_taken_over = 93;
constexpr int exit_diverged = 93;  // equal to exit_taken_over: neither may be started again

struct ExitCode {
  int code;
  const char* name;
  const char* meaning;
  const char* advice;  // what a scheduler should do
};
std::span<const ExitCode> exit_codes();
// Returns the table in Markdown.
std::string exit_code_table();

// Whether another attempt would, or must, end in the same way.
constexpr bool forbids_restart(int code) { return code != exit_failed; }

}  // namespace trireme::agent
