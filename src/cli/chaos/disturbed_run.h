// SPDX-License-Identifier: Apache-2.0
// DisturbedRun: a run under `trireme launch`, and the signals that disturb it. The folder of the
// experiment has the run in `run`, a quiet run in `quiet`, what both print in `run.log` and
// `quiet.log`, and in chaos.jsonl the plan and every disturbance that was done, so that another
// process can continue.
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/text/json.h"
#include "cli/chaos/evaluation.h"
#include "cli/chaos/launched_job.h"
#include "cli/chaos/report.h"
#include "cli/chaos/schedule.h"
#include "cli/chaos/step_lines.h"
#include "obs/children/child_process.h"

namespace trireme::cli {

struct ChaosOptions {
  std::filesystem::path folder;    // of the experiment
  std::vector<std::string> words;  // of launch, for both runs: without the folder of the run
  ScheduleOptions schedule;
  std::string checkpoint_folder;    // in the folder of a run
  std::string weights_folder;       // likewise
  std::filesystem::path quiet_run;  // empty: it is run, too
  double stop_seconds = 60;         // that the launcher has to save after a request to stop
  const std::atomic<bool>* stop = nullptr;
};

class DisturbedRun {
 public:
  // `continues`: what chaos.jsonl lists is not done again. Throws ConfigError if the folder has
  // another experiment, or `continues` is false and it has any; IoError.
  DisturbedRun(const ChaosOptions& options, bool continues);

  // Runs the quiet run, unless it has ended well before; then the disturbed one. Throws IoError if
  // the quiet run fails, and Stopped, after the runs have saved, if a stop is requested.
  ChaosReport run();

 private:
  void begin_list(bool continues);
  void run_quiet();
  obs::ChildProcess launch(const std::string& name, const std::vector<std::string>& more) const;
  // Looks again and again until holds() is true. Returns false if the job ended before.
  bool wait(LaunchedJob&, const std::function<bool()>& holds);
  [[noreturn]] void stop(LaunchedJob&);
  void disturb(LaunchedJob&);
  bool is_ready(const Disturbance&, LaunchedJob&);
  bool has_recovered();
  // Returns the process that the disturbance is done to; none: there is none now.
  static std::optional<pid_t> target(const Disturbance&, LaunchedJob&);
  // Returns false if the job ended before the process was found.
  bool do_one(const Disturbance&, LaunchedJob&);
  void pause(LaunchedJob&, pid_t process, double seconds);
  void measure(LaunchedJob&);
  double step_seconds() const;  // median of the last steps
  int64_t newest_checkpoint() const;
  RunFacts facts() const;
  ChaosReport report(int exit_code) const;

  const ChaosOptions& options_;
  const std::filesystem::path run_folder_, quiet_folder_;
  const std::vector<Disturbance> schedule_;
  std::vector<DoneDisturbance> done_;
  StepLines lines_;
  double read_events_at_ = 0;
  std::vector<obs::Event> events_;
  int64_t checkpoint_before_ = -1;  // the newest one when the last disturbance was done
  UseChange launcher_use_, rank_use_;
};

// Returns the SHA-256 over the names and bytes of the weights in a folder; empty if it has none.
std::string hash_of_weights(const std::filesystem::path& folder);

}  // namespace trireme::cli
