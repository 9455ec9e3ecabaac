// SPDX-License-Identifier: Apache-2.0
// What the launchers of several nodes tell each other through the store of an epoch: how the job
// ended on each node, and the one decision on what follows. A launcher alone does the same.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "agent/job.h"
#include "agent/rules/restart.h"
#include "comm/register/register.h"
#include "comm/store/membership.h"
#include "comm/store/store.h"
#include "comm/store/store_server.h"

namespace trireme::agent {

std::string node_name(int node);  // in the store

// The store of a start of the job, which node 0 serves.
struct JobStore {
  std::unique_ptr<comm::StoreServer> server;  // on node 0; null if the store is a folder
  std::unique_ptr<comm::Store> run_store;     // in no epoch
  std::string address, token;                 // for the ranks
};
// What the server of node 0 works with; see StoreServer::Options. Log and sockets may be those of
// one before it.
struct StoreParts {
  comm::Register* run_register = nullptr;
  comm::StoreLog* log = nullptr;
  std::vector<int> sockets;
};
// Throws CommAborted, IoError, ConfigError, and Stopped when `stop` is set.
JobStore open_job_store(const JobOptions& options, double deadline_s, const std::atomic<bool>* stop,
                        const StoreParts& parts = {});

// The store of an epoch, with this launcher as a member.
struct EpochStore {
  std::unique_ptr<comm::Store> store;
  std::unique_ptr<comm::Membership> membership;
};
// Throws CommAborted.
EpochStore enter_epoch(const comm::Store& run_store, int64_t epoch, int node);

// The way to the decision, seen from one node. Node 0 proposes it; all nodes read it. Calls throw
// CommAborted if the store, which node 0 runs, is gone.
class Agreement {
 public:
  // Every node that decides publishes its outcome; those that listen act on the decision.
  // The store must outlive it.
  Agreement(comm::Store& store, int node, std::vector<int> deciding, std::vector<int> listening)
      : store_(store),
        node_(node),
        deciding_(std::move(deciding)),
        listening_(std::move(listening)) {}
  // Call once per node.
  void publish(const NodeOutcome&);
  // Whether every other node that decides has published its outcome, or its launcher has ended.
  bool has_all_outcomes();
  // Settles the decision, unless there is one, from the outcomes that are there. On node 0.
  void propose(const Progress&);
  // Settles that the job ends, unless there is a decision. On node 0.
  void propose_end(int exit_code);
  std::optional<Decision> decision();
  // Notifies node 0 that this node knows the decision; on node 0 waits some seconds until all do:
  // the store ends with its process.
  void confirm();

 private:
  bool have_all(const std::vector<int>& nodes, std::string (*key_of)(int node));

  comm::Store& store_;
  const int node_;
  const std::vector<int> deciding_, listening_;
};

// For a launcher of several that cannot start its ranks: makes `message` the verdict of the epoch
// and `exit_code` the outcome of this node, so that the other nodes end with them and do not wait
// for this one. Waits for them for a few seconds at most.
void tell_other_nodes(const JobOptions& options, const std::string& message, int exit_code);

}  // namespace trireme::agent
