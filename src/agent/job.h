// SPDX-License-Identifier: Apache-2.0
// One start of a job, as its launcher on one node makes it, and as it ended there.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "agent/processes/processes.h"
#include "agent/rules/restart.h"
#include "comm/failure/verdict.h"
#include "comm/world/rank_env.h"

namespace trireme::agent {

struct JobResult;

struct JobOptions {
  int ranks_here = 1;
  int nodes = 1, node = 0;
  int spare_nodes = 0;               // beyond `nodes`: they begin without ranks
  std::string rendezvous;            // host:port of node 0; empty with one node
  double deadline_s = 600;           // of one communication
  double detect_s = 5;               // a rank without a heartbeat for longer has stalled
  std::vector<std::string> command;  // program and arguments of every rank
  comm::Environment environment;     // of every rank
  std::string flight_folder;
  std::string run_folder;    // whose record may tell why a rank ended; empty: unknown
  std::string token;         // of the job; the same on all nodes
  std::string public_name;   // of the job: the token of a job without secrets
  std::string token_folder;  // if not empty, the token is in the file of node 0 there
  int64_t epoch = 0;         // that the start begins with
  int64_t restarts = 0;      // the number of starts before this one
  int64_t max_restarts = 0;
  int64_t fruitless = 0;     // Progress::fruitless
  bool starts_over = false;  // what is saved at the start is not where this epoch begins
  // Returns the step of the newest committed checkpoint, -1 if there is none; null: unknown.
  std::function<int64_t()> saved_step;
  // Returns Progress::before_divergence; null: a diverged run is not started again.
  std::function<std::optional<int64_t>()> before_divergence;
  int64_t went_back_to = -1;  // Progress::went_back_to
  // Ranks that are lost are replaced, and the others go on in their processes
  // (comm/world/epochs.h).
  bool is_elastic = false;
  std::vector<std::string> replacing_command;  // as `command`, for processes that replace others
  int spares = 0;                              // processes on this node that wait for a lost rank
  // Called when a rank was short of memory; on node 0. Returns the keys of another layout, as
  // options of train; empty: there is none. May be null.
  std::function<std::vector<std::string>()> next_layout;
  // Called when a verdict stands after which the run goes on; `result` has it. May be null.
  std::function<void(const JobResult& result)> survived;
  bool shows_all = false;  // stdout of all ranks, not only of rank 0
  bool keeps_out = false;  // rank 0's stdout is kept for the result, not printed

  int world() const { return ranks_here * nodes; }
  int all_nodes() const { return nodes + spare_nodes; }
  // So long the store may be away: see StoreOptions.
  double outage_s() const { return is_elastic && node != 0 ? comm::outage_seconds : 0; }
  // Returns the token by which ranks and launchers of this epoch know each other.
  std::string token_of_epoch(const std::string& job_token) const;
};

struct JobResult {
  std::optional<comm::Verdict> verdict;  // none: no rank failed, or the run went on after it
  int64_t epoch = 0;                     // the last one
  // In seconds since 1970, if a rank failed: when that was found, when the verdict was given, and
  // when all processes had ended.
  double failed_at = 0, concluded_at = 0, ended_at = 0;
  double lost_at = 0;  // likewise: the rank at fault ended, beat or moved last
  int stopped_by = 0;  // the signal that requested this launcher to stop; 0: none
  // Why a launcher whose ranks would be replaced ends without an agreement: it has not reached
  // node 0 for comm::isolate_seconds; the others went on without this node.
  bool has_lost_store = false, is_fenced = false;
  std::vector<RankProcesses::State> ranks;  // of this node
  std::string out;                          // rank 0's stdout, with keeps_out
  // On which the launchers have agreed; without an agreement that of this node: it ends.
  Decision decision;

  bool is_good() const;
  // Returns the exit code of this node from those of its ranks (docs/stopping.md).
  int node_exit_code() const;
};

}  // namespace trireme::agent
