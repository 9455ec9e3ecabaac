// SPDX-License-Identifier: Apache-2.0
// The decision on what follows when all ranks of an epoch have ended: one for the whole run, which
// launchers read from the store. decide() is a pure function of the outcomes of the nodes and of
// the progress of the run.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace trireme::agent {

// How the job ended on one node, or on all.
struct NodeOutcome {
  int exit_code = 0;
  bool may_restart = false;  // no stop was requested here

  bool operator==(const NodeOutcome&) const = default;
};
std::string to_text(const NodeOutcome&);
std::optional<NodeOutcome> outcome_from(const std::string& text);

// Returns the outcome of a job from those of its nodes: the exit code that forbids most (93, 2, 1,
// 75, 0), and whether no node objects to a restart.
NodeOutcome outcome_of_job(std::span<const NodeOutcome> nodes);

struct Progress {
  int64_t restarts = 0, max_restarts = 0;
  int64_t fruitless = 0;  // starts before this one, in a row, that saved no newer step
  // The step of the newest committed checkpoint when the ranks were started, and now; -1: there is
  // none. None: it cannot be known, and only max_restarts bounds the restarts.
  std::optional<int64_t> saved_at_start, saved_now;
  std::string lost_host;  // why the job has to be started again by a scheduler; empty: it need not
  // If ranks were short of memory: the keys of another layout, as options of train.
  std::vector<std::string> next_layout;
  std::string given_up;  // why the run is not started again, whatever was saved; empty: it may be
  // If the numbers of the run have diverged: the step of the newest checkpoint from before, -1 if
  // there is none. None: they have not, or the run is not to be started again then.
  std::optional<int64_t> before_divergence;
  int64_t went_back_to = -1;  // the step to which the job has gone back already; -1: it has not
};

struct Decision {
  int exit_code = 0;
  bool restarts = false;
  double wait_s = 0;      // before the restart
  int64_t fruitless = 0;  // Progress::fruitless of the next start
  std::string reason;     // why the run ends although it could be started again; may be empty
  std::vector<std::string> layout;  // Progress::next_layout of the restart; empty: the same one
  int64_t goes_back_to = -1;        // Progress::before_divergence of the restart; -1: it does not

  bool operator==(const Decision&) const = default;
};
// Three starts without progress end the run; until then the wait doubles. A start with another
// layout does not count as a restart, nor does the one after a divergence, which is made once.
Decision decide(std::span<const NodeOutcome> nodes, const Progress&);

std::string to_text(const Decision&);
std::optional<Decision> decision_from(const std::string& text);

}  // namespace trireme::agent
