// SPDX-License-Identifier: Apache-2.0
// Error reports of a process that is one rank of several and was not started by `trireme launch`:
// one message on stderr and one JSON object for the whole run (comm/failure/failure_report.h), and
// the error files of torchrun.
#pragma once

#include <functional>
#include <string>

#include "comm/world/rank_env.h"

namespace trireme::cli {

struct RankErrorOptions {
  bool wants_json = false;
  // Returns RankInfo::run_folder, by which a rank that has failed finds the others; may be empty.
  std::function<std::string()> run_folder;
};

// Runs `body` with `info`, in which it sets `failed`, and returns its exit code, or the exit code
// of the exception that it throws. If this process is the only rank, or `trireme launch` reports
// errors, the exception is passed on to run_command().
int run_rank(comm::RankInfo info, const RankErrorOptions& options,
             const std::function<int(const comm::RankInfo&)>& body);

// Returns whether this process is a rank other than 0, whose bad call rank 0 reports, too: all
// ranks have the same command line.
bool is_reported_by_rank_zero();

}  // namespace trireme::cli
