// SPDX-License-Identifier: Apache-2.0
// What the disturbances of `trireme chaos` cost a run, as a pure function of its steps and events
// and of those of a quiet run.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/text/json.h"
#include "cli/chaos/rank_pids.h"
#include "cli/chaos/schedule.h"
#include "cli/chaos/step_lines.h"
#include "obs/files/event.h"

namespace trireme::cli {

// A disturbance that was done.
struct DoneDisturbance {
  Disturbance what;
  pid_t process = 0;   // that was sent the signal
  double time = 0;     // seconds since 1970: when the signal was sent
  int64_t newest = 0;  // the highest step that had finished
};
base::Json to_json(const DoneDisturbance&);
// Throws Json::exception if a field is missing or has another type, ConfigError for an unknown
// kind.
DoneDisturbance done_from(const base::Json&);

enum class Naming : uint8_t {
  right,    // the verdict names the rank, and no other one
  wrong,    // or there is a verdict although no rank was lost
  missing,  // there is none, though the rank was killed or stopped for ever
  none      // there is none, and none was due
};

struct DisturbanceResult {
  DoneDisturbance done;
  // To the next step that finished: since the signal, after a pause since SIGCONT. None: no step
  // followed.
  std::optional<double> next_step_seconds;
  int64_t repeated_steps = 0;
  Naming naming = Naming::missing;
  std::string verdict;                    // its text
  std::optional<double> verdict_seconds;  // from the signal; none: there is no verdict
  // The seconds of the recovery in the processes that were left, in the order of recovery_parts;
  // empty: the run has recorded none.
  std::vector<double> parts;
};
// Names of the seconds that an event of kind `recovered` has (docs/formats.md).
inline constexpr const char* recovery_parts[] = {"detect",  "abort",  "reform",
                                                 "restore", "repeat", "start"};

// What a run has in its folder at one time.
struct RunFacts {
  std::vector<StepLine> steps;
  std::vector<double> starts;  // when attempts began
  std::vector<obs::Event> events;
};
// Returns one result for each disturbance. REQUIRES: they are in the order of their times.
std::vector<DisturbanceResult> results_of(const RunFacts&, std::span<const DoneDisturbance>);

// Returns the smallest of the values that at least this share of them does not exceed; NaN if there
// are none.
double percentile(std::vector<double> values, double share);

// Losses are means over ranks, and are rounded in another way for another number of ranks, although
// the weights have the same bits.
constexpr double loss_tolerance = 1e-9;  // relative

// Differences between the last computation of every step, in two runs.
struct StepDifferences {
  int64_t missing_steps = 0;  // which the quiet run has
  int64_t other_losses = 0;   // steps whose loss differs by more
  int64_t other_repeats = 0;  // steps that had another loss when they were repeated
  double lost_tokens = 0;     // that the quiet run has consumed at its last step
  double doubled_tokens = 0;  // beyond those
  bool are_none() const {
    return missing_steps == 0 && other_losses == 0 && other_repeats == 0 && lost_tokens == 0 &&
           doubled_tokens == 0;
  }
};
StepDifferences differences(std::span<const StepLine> quiet, std::span<const StepLine> disturbed);

// Returns the longest time between two lines of steps, in seconds; 0 with fewer than two.
double longest_gap(std::span<const StepLine> steps);

}  // namespace trireme::cli
