// SPDX-License-Identifier: Apache-2.0
// RunCost: what a whole run takes, from the time of one step.
#pragma once

#include <cstdint>
#include <optional>

namespace trireme::plan {

struct RunCost {
  double tokens = 0;  // as asked
  int64_t steps = 0;  // whole ones; the last may go beyond the tokens
  double days = 0;    // of steps alone: without restarts, evaluation and waiting for the queue
  double gpu_hours = 0;
  std::optional<double> dollars;  // none: no price is known
};

struct RunQuestion {
  double tokens = 0;  // REQUIRES: at least those of one step, at most 1e18
  int64_t step_tokens = 0;
  double step_seconds = 0;
  int64_t gpus = 0;
  std::optional<double> dollars_per_gpu_hour;
};
RunCost run_cost(const RunQuestion&);

}  // namespace trireme::plan
