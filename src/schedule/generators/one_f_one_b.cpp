// SPDX-License-Identifier: Apache-2.0
// 1F1B (PipeDream-Flush, Narayanan et al., 2021): a rank runs ahead by as many forwards as there
// are stages after it, then alternates one forward and one backward, then drains. It has
// min(ranks - rank, microbatches) micro-batches in flight.
//
// With receives at their consumer this needs one send buffer per channel: of two adjacent ranks the
// earlier sends an activation while the later sends a gradient, and with rendezvous both would
// deadlock.
#include <algorithm>
#include <cstdint>

#include "schedule/generators/lanes.h"
#include "schedule/schedule.h"

namespace trireme::schedule {

Schedule one_f_one_b(int ranks, int microbatches) {
  Schedule schedule = empty_schedule(ranks, microbatches, {straight_lane(ranks)});
  for (int rank = 0; rank < ranks; ++rank) {
    std::vector<Action>& program = schedule.program[static_cast<size_t>(rank)];
    const auto stage = static_cast<int16_t>(rank);
    const int ahead = std::min(ranks - 1 - rank, microbatches);
    for (int m = 0; m < microbatches + ahead; ++m) {
      if (m < microbatches) program.push_back({Op::F, stage, -1, m});
      if (m >= ahead) program.push_back({Op::BW, stage, -1, m - ahead});
    }
  }
  return schedule;
}

}  // namespace trireme::schedule
