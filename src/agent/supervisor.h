// SPDX-License-Identifier: Apache-2.0
// Supervisor: runs one start of a job on one node, from epoch to epoch as long as lost ranks can be
// replaced. It serves the store, forwards output and signals, turns what it finds into events for
// the Policy, and carries out the actions.
#pragma once

#include "agent/guardian/keeper.h"
#include "agent/job.h"

namespace trireme::agent {

// Returns when the launchers have agreed on what follows. Throws ConfigError, IoError, CommAborted
// if the ranks cannot be started. If the keeper has what a supervisor left that died during this
// start, goes on where that one was.
JobResult run_start(const JobOptions& options, Keeper& keeper);

// Waits before the next start. Throws Stopped when a signal requests this process to stop.
void wait_for_restart(double seconds);

}  // namespace trireme::agent
