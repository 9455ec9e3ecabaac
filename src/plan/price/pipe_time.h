// SPDX-License-Identifier: Apache-2.0
// What a pipeline adds to the time that its slowest rank computes, in closed form. That of uniform
// stages is what the simulator plays (pipe_time_test.cpp); the best layouts of a search are
// simulated besides.
#pragma once

#include "plan/job.h"
#include "plan/stack.h"
#include "plan/memory/stage_share.h"
#include "spec/machine.h"

namespace trireme::plan {

struct PipeSeconds {
  double bubble = 0;    // of the slowest rank: at the start and the end of a step
  double messages = 0;  // that nothing hides
};
PipeSeconds pipe_seconds(const Job&, const spec::Machine&, const Stack&, const Layout&,
                         const LayerCosts&, const RankTimes&);

}  // namespace trireme::plan
