// SPDX-License-Identifier: Apache-2.0
// The time that a pipeline adds to the compute of its slowest rank, in closed form. For uniform
// stages it equals the simulator's (pipe_time_test.cpp); the best layouts of a search are also
// simulated.
#pragma once

#include "plan/job.h"
#include "plan/memory/stage_share.h"
#include "plan/stack.h"
#include "spec/machine.h"

namespace trireme::plan {

struct PipeSeconds {
  double bubble = 0;    // idle time of the slowest rank at the start and end of a step
  double messages = 0;  // exposed
};
PipeSeconds pipe_seconds(const Job&, const spec::Machine&, const Stack&, const Layout&,
                         const LayerCosts&, const RankTimes&);

}  // namespace trireme::plan
