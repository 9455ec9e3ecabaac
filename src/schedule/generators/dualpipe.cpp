// SPDX-License-Identifier: Apache-2.0
// DualPipe (DeepSeek-AI, 2024): two copies of the model in opposite directions, so that every rank
// has two stages and the forward of one direction runs together with the backward of the other.
// Even micro-batches go down the ranks, odd ones up.
#include <algorithm>

#include "base/check.h"
#include "schedule/generators/dual.h"
#include "schedule/generators/lanes.h"

namespace trireme::schedule {

Schedule dualpipe(int ranks, int microbatches) {
  TRIREME_CHECK(ranks % 2 == 0 && microbatches % 2 == 0, "{} ranks, {} micro-batches", ranks,
                microbatches);
  const Lane down = straight_lane(ranks);
  Schedule schedule = empty_schedule(ranks, microbatches, {down, Lane(down.rbegin(), down.rend())});
  for (int rank = 0; rank < ranks; ++rank) {
    const int other_end = ranks - 1 - rank;
    const int own_lane = rank < other_end ? 0 : 1;  // the lane that begins at this end
    const int place = std::min(rank, other_end);
    schedule.program[static_cast<size_t>(rank)] = dual_program(
        {.depth = ranks / 2,
         .place = place,
         .count = microbatches / 2,
         .stage = {static_cast<int16_t>(place), static_cast<int16_t>(ranks - 1 - place)},
         .microbatch = [&](int side, int index) { return 2 * index + (own_lane ^ side); }});
  }
  return schedule;
}

}  // namespace trireme::schedule
