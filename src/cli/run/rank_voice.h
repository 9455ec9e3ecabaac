// SPDX-License-Identifier: Apache-2.0
// Errors of a process that is one rank of several, started by a launcher of others: one message on
// stderr and one JSON object for the whole run (comm/world/failure_report.h), and torchrun's error files.
#pragma once

#include <functional>

#include "comm/world/rank_env.h"

namespace trireme::cli {

// Runs `body` with `info`, in which it sets `failed`, and returns its exit code, or that of what it
// throws. Throws on what run_command() should report: where this process is alone, or `trireme
// launch` reports.
int run_rank(comm::RankInfo info, bool wants_json,
             const std::function<int(const comm::RankInfo&)>& body);

// Whether a later rank of a run has the same command line, and with it the same bad call.
bool is_reported_by_rank_zero();

}  // namespace trireme::cli
