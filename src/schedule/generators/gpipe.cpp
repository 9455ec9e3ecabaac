// SPDX-License-Identifier: Apache-2.0
// GPipe (Huang et al., 2019): all forwards, then all backwards. Every rank holds all micro-batches
// at once.
//
// Backwards run in the order of the micro-batches, not in reverse: gradients are then summed left
// to right as in every other single-lane schedule, so the bits of a step do not depend on the
// schedule.
#include "schedule/generators/lanes.h"
#include "schedule/schedule.h"

namespace trireme::schedule {

Schedule gpipe(int ranks, int microbatches) {
  Schedule schedule = empty_schedule(ranks, microbatches, {straight_lane(ranks)});
  for (int rank = 0; rank < ranks; ++rank) {
    std::vector<Action>& program = schedule.program[static_cast<size_t>(rank)];
    const auto stage = static_cast<int16_t>(rank);
    for (int m = 0; m < microbatches; ++m) program.push_back({Op::F, stage, -1, m});
    for (int m = 0; m < microbatches; ++m) program.push_back({Op::BW, stage, -1, m});
  }
  return schedule;
}

}  // namespace trireme::schedule
