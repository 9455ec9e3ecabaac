// SPDX-License-Identifier: Apache-2.0
#include "agent/exit_codes.h"

#include <fmt/format.h>

#include <array>

namespace trireme::agent {
namespace {

constexpr std::array table = {
    ExitCode{exit_done, "done", "done", "continue"},
    ExitCode{exit_failed, "failed",
             "failed, with a message; also a run that reached its last step, but could not save it "
             "or export its weights",
             "start it again with `--resume auto`, or act on the message"},
    ExitCode{exit_bad_call, "bad call",
             "the call or the configuration is wrong, or names a file that does not exist; without "
             "a verb the help is printed",
             "not start it again"},
    ExitCode{exit_stopped, "stopped", "stopped on request; the step is saved",
             "start it again with `--resume auto`"},
    ExitCode{exit_taken_over, "taken over", "another process has taken the run over",
             "not start it again"},
    ExitCode{exit_diverged, "diverged",
             "the run makes no progress: three starts in a row saved no newer step, or its numbers "
             "diverged",
             "not start it again"},
};

}  // namespace

std::span<const ExitCode> exit_codes() { return table; }

std::string exit_code_table() {
  std::string text = "| code | name | meaning | a scheduler should |\n|---|---|---|---|\n";
  for (const ExitCode& row : table) {
    text += fmt::format("| {} | {} | {} | {} |\n", row.code, row.name, row.meaning, row.advice);
  }
  return text;
}

}  // namespace trireme::agent
