// SPDX-License-Identifier: Apache-2.0
// Whole steps against the sum of their operations.
#pragma once

#include <vector>

#include "plan/job.h"
#include "spec/machine.h"

namespace trireme::plan {

struct TimedStep {
  Job job;
  spec::Layout layout;
  double seconds = 0;
};

// Sets step_factor, by which whole steps take longer than the sum of their operations predicts, the
// residual of steps, and time_error. The caller clamps them (plan/calibrate/measurement_noise.h).
// REQUIRES: at least one step; step_factor is 1.
void fit_step_factor(const std::vector<TimedStep>&, spec::Machine&);

}  // namespace trireme::plan
