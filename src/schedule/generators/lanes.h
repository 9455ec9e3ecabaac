// SPDX-License-Identifier: Apache-2.0
// The lanes of pipelines, for generators.
#pragma once

#include <vector>

#include "schedule/schedule.h"

namespace trireme::schedule {

Lane straight_lane(int ranks);             // 0 1 2
Lane looping_lane(int ranks, int chunks);  // 0 1 2 0 1 2
Lane v_lane(int ranks);                    // 0 1 2 2 1 0

// Returns a schedule with empty programs. REQUIRES: ranks, microbatches >= 1, and all values fit
// Action.
Schedule empty_schedule(int ranks, int microbatches, std::vector<Lane> lanes);

}  // namespace trireme::schedule
