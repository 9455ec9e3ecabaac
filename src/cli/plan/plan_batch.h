// SPDX-License-Identifier: Apache-2.0
// The options of `trireme plan` that set the size of a step.
#pragma once

#include "cli/plan/plan_job.h"
#include "cli/shell/args.h"

namespace trireme::cli {

void take_seq_len(const Args&, PlanQuestion&);
void take_batch(const Args&, PlanQuestion&);

// Throws ConfigError if parameters or activations of a step are more than the types of the planner
// can hold.
void check_sizes(const plan::Job&);

}  // namespace trireme::cli
