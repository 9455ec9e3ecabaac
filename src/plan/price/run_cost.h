// SPDX-License-Identifier: Apache-2.0
// RunCost is the time and money of a full run, computed from the time of one step.
#pragma once

#include <cstdint>
#include <optional>

namespace trireme::plan {

struct RunCost {
  double tokens = 0;  // RunQuestion::tokens
  int64_t steps = 0;  // rounded up; the last step may exceed the tokens
  double days = 0;    // training steps only: no restarts, evaluation or queue time
  double gpu_hours = 0;
  std::optional<double> dollars;  // none: no price is given
};

struct RunQuestion {
  double tokens = 0;  // REQUIRES: between step_tokens and 1e18
  int64_t step_tokens = 0;
  double step_seconds = 0;
  int64_t gpus = 0;
  std::optional<double> dollars_per_gpu_hour;
};
RunCost run_cost(const RunQuestion&);

// Returns the seconds between saves that lose least if a save stalls the run for `save_seconds` and
// failures come every `failure_seconds` (Young's approximation).
double best_save_interval(double save_seconds, double failure_seconds);

}  // namespace trireme::plan
