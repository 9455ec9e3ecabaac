// SPDX-License-Identifier: Apache-2.0
// The starts of a job, one after the other, on this node, and what the supervisor that makes them
// leaves to one that takes its place.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "agent/guardian/keeper.h"
#include "agent/job.h"
#include "base/text/json_fwd.h"
#include "cli/launch/launch_call.h"

namespace trireme::cli {

// How far a job has come.
struct JobCourse {
  int64_t recoveries = 0;
  double started = 0;  // in seconds since 1970: its ranks, the last time; 0: they are not yet
  std::vector<std::string> layout;  // the keys that a lack of memory has changed; empty: none
};

// Returns where a job stands that a supervisor before this one has left, and sets what changes in
// its options from start to start. `job` is what run_starts() has kept as agent::kept_job.
JobCourse go_on(const base::Json& job, agent::JobOptions& options);

// Starts the job, and again as long as the launchers decide so. Failures are recorded in the run's
// folder by node 0. Throws as agent::run_start(), and Stopped.
agent::JobResult run_starts(agent::JobOptions& options, const LaunchConfig& launched,
                            agent::Keeper& keeper, JobCourse& course);

}  // namespace trireme::cli
