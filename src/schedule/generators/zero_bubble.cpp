// SPDX-License-Identifier: Apache-2.0
#include "schedule/generators/zero_bubble.h"

#include <algorithm>
#include <cstdint>

#include "schedule/generators/lanes.h"

namespace trireme::schedule {

Schedule zero_bubble(int ranks, int microbatches, const std::function<Lead(int rank)>& lead_of) {
  Schedule schedule = empty_schedule(ranks, microbatches, {straight_lane(ranks)});
  for (int rank = 0; rank < ranks; ++rank) {
    std::vector<Action>& program = schedule.program[static_cast<size_t>(rank)];
    const auto stage = static_cast<int16_t>(rank);
    const int ahead = std::min(lead_of(rank).ahead, microbatches);
    const int lag = ahead + std::min(lead_of(rank).behind, microbatches);
    for (int k = 0; k < microbatches + lag; ++k) {
      if (k < microbatches) program.push_back({Op::F, stage, -1, k});
      if (k >= ahead && k < microbatches + ahead) program.push_back({Op::B, stage, -1, k - ahead});
      if (k >= lag) program.push_back({Op::W, stage, -1, k - lag});
    }
  }
  return schedule;
}

}  // namespace trireme::schedule
