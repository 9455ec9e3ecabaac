// SPDX-License-Identifier: Apache-2.0
#include "schedule/generators/lanes.h"

#include <cstdint>
#include <limits>
#include <utility>

#include "base/check.h"

namespace trireme::schedule {

Lane straight_lane(int ranks) { return looping_lane(ranks, 1); }

Lane looping_lane(int ranks, int chunks) {
  Lane lane;
  for (int chunk = 0; chunk < chunks; ++chunk) {
    for (int rank = 0; rank < ranks; ++rank) lane.push_back(rank);
  }
  return lane;
}

Lane v_lane(int ranks) {
  Lane lane = straight_lane(ranks);
  for (int rank = ranks - 1; rank >= 0; --rank) lane.push_back(rank);
  return lane;
}

Schedule empty_schedule(int ranks, int microbatches, std::vector<Lane> lanes) {
  constexpr int max = std::numeric_limits<int16_t>::max();
  TRIREME_CHECK(ranks >= 1 && ranks <= max, "{} ranks", ranks);
  TRIREME_CHECK(microbatches >= 1, "{} micro-batches", microbatches);
  TRIREME_CHECK(!lanes.empty() && !lanes[0].empty() && std::ssize(lanes[0]) <= max, "{} lanes",
                lanes.size());
  Schedule schedule{ranks, microbatches, std::move(lanes), {}};
  schedule.program.resize(static_cast<size_t>(ranks));
  return schedule;
}

}  // namespace trireme::schedule
