// SPDX-License-Identifier: Apache-2.0
// Exit codes of the program (docs/exit-codes.md).
#pragma once

namespace trireme::cli {

constexpr int exit_done = 0;
constexpr int exit_failed = 1;
constexpr int exit_bad_call = 2;  // the call or the configuration is wrong
constexpr int exit_stopped = 75;  // stopped on request and saved: start again with --resume auto
constexpr int exit_do_not_requeue = 93;  // another process has taken the run over

}  // namespace trireme::cli
