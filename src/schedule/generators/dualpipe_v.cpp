// SPDX-License-Identifier: Apache-2.0
// DualPipeV (DeepSeek-AI, 2025): one half of DualPipe, folded at its middle: the second direction
// is the return path of the first. Two chunks per rank and one copy of the model.
#include "schedule/generators/dual.h"
#include "schedule/generators/lanes.h"

namespace trireme::schedule {

Schedule dualpipe_v(int ranks, int microbatches) {
  Schedule schedule = empty_schedule(ranks, microbatches, {v_lane(ranks)});
  for (int rank = 0; rank < ranks; ++rank) {
    schedule.program[static_cast<size_t>(rank)] = dual_program(
        {.depth = ranks,
         .place = rank,
         .count = microbatches,
         .stage = {static_cast<int16_t>(rank), static_cast<int16_t>(2 * ranks - 1 - rank)},
         .microbatch = [](int, int index) { return index; }});
  }
  return schedule;
}

}  // namespace trireme::schedule
