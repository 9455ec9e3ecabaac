// SPDX-License-Identifier: Apache-2.0
// LaunchedJob: a job under `trireme launch` whose launcher may lose processes itself: the one that
// was started may be killed, and the job goes on under others.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <optional>
#include <set>

#include "cli/chaos/rank_pids.h"
#include "obs/children/child_process.h"

namespace trireme::cli {

class LaunchedJob {
 public:
  // `run_folder`: of the job. From now on this process is the parent of processes that the job
  // leaves without one.
  LaunchedJob(obs::ChildProcess launcher, std::filesystem::path run_folder);
  // Ends the job, if it still runs.
  ~LaunchedJob();
  LaunchedJob(const LaunchedJob&) = delete;
  LaunchedJob& operator=(const LaunchedJob&) = delete;

  bool is_running();
  // Requests a stop: ranks save and end.
  void stop();
  // Waits for its end at most so long. Returns whether it has ended.
  bool wait(double seconds);
  // Returns the exit code of the job. REQUIRES: it has ended.
  int exit_code() const;

  // Returns the processes of the job as they are now.
  RankPids processes();
  // Would the job survive the loss of any one process of its launcher?
  bool is_guarded();
  // Returns what all processes of the launcher hold; none if one of them has just ended.
  std::optional<ProcessUse> launcher_use();

 private:
  void reap();
  pid_t head() const;  // that handles requests; 0: none lives

  obs::ChildProcess launcher_;
  const std::filesystem::path run_folder_;
  std::set<pid_t> own_;  // processes of the launcher, of which some may have ended
  std::optional<int> exit_code_;
};

}  // namespace trireme::cli
