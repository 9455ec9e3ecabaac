// SPDX-License-Identifier: Apache-2.0
// What the launcher adds to the record of a run when it has ended a failed job: the verdict, in
// events.jsonl and as an alert. The ranks cannot do that: they were killed.
#pragma once

#include <filesystem>

#include "agent/job.h"
#include "config/config.h"

namespace trireme::cli {

struct FailedJob {
  const agent::JobResult& result;
  double started = 0;  // in seconds since 1970: when the launcher started the ranks
};
// Does nothing if no rank failed, or if this job never began to write to the run's folder. Problems
// are logged as warnings: the job's own failure is what counts.
void record_failure(const config::Config&, const FailedJob&);

}  // namespace trireme::cli
