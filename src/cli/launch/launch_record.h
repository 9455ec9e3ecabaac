// SPDX-License-Identifier: Apache-2.0
// What the launcher adds to the record of a run when it has ended a failed job: the verdict, in
// events.jsonl and as an alert. The ranks cannot do that: they were killed.
#pragma once

#include <filesystem>

#include "cli/launch/launch_watch.h"
#include "config/config.h"

namespace trireme::cli {

struct FailedJob {
  const LaunchResult& result;
  double started = 0;     // in seconds since 1970: when the launcher started the ranks
  bool restarts = false;  // it is going to start them again
};
// Does nothing if no rank failed, or if this job never began to write to the run's folder. Problems
// are logged as warnings: the job's own failure is what counts.
void record_failure(const config::Config&, const FailedJob&);

}  // namespace trireme::cli
