// SPDX-License-Identifier: Apache-2.0
// LauncherStore: the store of a start of the job, as a launcher uses it from epoch to epoch. Node 0
// serves it, with the run's register if lost ranks are replaced. Under a guardian its contents and
// its sockets outlive the process that serves it (agent/guardian/keeper.h).
#pragma once

#include <cstdint>
#include <memory>

#include "agent/crew.h"
#include "agent/guardian/keeper.h"
#include "agent/job.h"
#include "agent/nodes.h"
#include "agent/store/run_register.h"

namespace trireme::agent {

class LauncherStore {
 public:
  // Both must outlive it.
  LauncherStore(const JobOptions& options, Keeper& keeper) : options_(options), keeper_(keeper) {}

  // Serves the store, or connects to it. Returns how ranks reach it. Call once, before everything
  // else. Throws as open_job_store().
  Crew::Address open();
  // From now on the store of an epoch, with this launcher as a member. Throws CommAborted.
  void enter(int64_t epoch);
  // The start is over: a process that takes the place of this one has nothing to take over.
  void forget();

  comm::Store& of_run() { return *run_store_; }  // in no epoch
  // REQUIRES: enter() was called.
  comm::Store& of_epoch() { return *epoch_.store; }
  comm::Membership& members() { return *epoch_.membership; }
  RunRegister* run_register() { return register_.get(); }  // null: this launcher keeps none

 private:
  bool is_folder() const;
  void open_register();
  void open_log();

  const JobOptions& options_;
  Keeper& keeper_;
  std::unique_ptr<RunRegister> register_;  // that the server serves
  std::unique_ptr<comm::StoreLog> log_;    // of the server; null: none
  std::unique_ptr<comm::StoreServer> server_;
  std::unique_ptr<comm::Store> run_store_;
  EpochStore epoch_;
};

}  // namespace trireme::agent
