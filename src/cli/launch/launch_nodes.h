// SPDX-License-Identifier: Apache-2.0
// What the launchers of several nodes tell each other through the store: how the job ended on each
// node. All of them then end with one exit code, and all or none start the job again.
#pragma once

#include <atomic>
#include <exception>
#include <memory>
#include <string>
#include <vector>

#include "cli/launch/launch_watch.h"
#include "comm/store/membership.h"
#include "comm/store/store.h"
#include "comm/store/store_server.h"

namespace trireme::cli {

// How the job ended on one node, or on all.
struct NodeOutcome {
  int exit_code = 0;
  bool may_restart = false;  // there is no objection to another attempt

  bool operator==(const NodeOutcome&) const = default;
};

// Returns the outcome of a job from those of its nodes: the exit code that forbids most (93, 2, 1,
// 75, 0), and whether no node objects to a restart.
NodeOutcome outcome_of_job(const std::vector<NodeOutcome>& nodes);

struct NodePlace {
  int node = 0, nodes = 1;
  double max_wait_s = 10;                   // for the outcomes of the other nodes
  const std::atomic<bool>* stop = nullptr;  // ends the wait
};

std::string node_name(int node);  // in the store

// The store of one attempt, which node 0 serves.
struct LaunchStore {
  std::unique_ptr<comm::StoreServer> server;  // on node 0; null if the store is a folder
  std::unique_ptr<comm::Store> store;         // in the epoch of the attempt
  std::unique_ptr<comm::Membership> membership;
  std::string address, token;  // for the ranks
};
// Throws CommAborted, IoError, ConfigError, and Stopped when `stop` is set.
LaunchStore open_launch_store(const LaunchOptions& options, double deadline_s,
                              const std::atomic<bool>* stop);

// Publishes the outcome of this node, waits for those of the others, and returns that of the job,
// the same on every node. Nodes whose launcher has ended, or has not published its outcome in time,
// are left out. Throws CommAborted if node 0, which runs the store, has ended.
NodeOutcome agree_on_outcome(comm::Store& store, const NodePlace& place, const NodeOutcome& own);

// For a launcher of several that cannot start its ranks because of `error`: makes the error the
// verdict of the attempt, so that the other nodes end with it and do not wait for this one. Waits
// for them for a few seconds at most.
void tell_other_nodes(const LaunchOptions& options, const std::exception& error);

}  // namespace trireme::cli
