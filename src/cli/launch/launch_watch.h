// SPDX-License-Identifier: Apache-2.0
// The main loop of `trireme launch`: it serves the store, forwards output and signals, and when a
// rank dies or stalls it ends all processes and reports one verdict.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cli/launch/launch_processes.h"
#include "comm/failure/verdict.h"

namespace trireme::cli {

struct LaunchOptions {
  int ranks_here = 1;
  int nodes = 1, node = 0;
  std::string rendezvous;            // host:port of node 0; empty with one node
  double deadline_s = 600;           // a rank without a heartbeat for longer has stalled
  std::vector<std::string> command;  // program and arguments of every rank
  std::string flight_folder;
  std::string run_folder;    // whose record may tell why a rank ended; empty: unknown
  std::string token;         // of the job; the same on all nodes
  std::string public_name;   // of the job: the token of a job without secrets
  std::string token_folder;  // if not empty, the token is in the file of node 0 there
  int64_t restart = 0;       // the number of attempts before this one
  bool may_restart = false;  // another attempt may follow
  bool shows_all = false;    // stdout of all ranks, not only of rank 0
  bool keeps_out = false;    // rank 0's stdout is kept for the result, not printed

  // Returns the token by which ranks and launchers of this attempt know each other.
  std::string token_of_attempt(const std::string& job_token) const;
};

struct LaunchResult {
  std::optional<comm::Verdict> verdict;  // none: no rank failed
  // In seconds since 1970, if a rank failed: when that was found, when the verdict was given, and
  // when all processes had ended.
  double failed_at = 0, concluded_at = 0, ended_at = 0;
  int stopped_by = 0;  // the signal that requested this launcher to stop; 0: none
  std::vector<RankProcesses::State> ranks;  // of this node
  std::string out;                          // rank 0's stdout, with keeps_out
  // With several nodes: the exit code of the job, on which the launchers have agreed.
  std::optional<int> job_exit_code;
  bool restarts = false;  // the job is to be started again, on all nodes

  bool is_good() const;
  // Returns the exit code of the job, or without one that of this node, from those of its ranks
  // (docs/stopping.md).
  int exit_code() const;
};

// Throws ConfigError, IoError, CommAborted if the ranks cannot be started.
LaunchResult run_launch(const LaunchOptions& options);

}  // namespace trireme::cli
