// SPDX-License-Identifier: Apache-2.0
// Interleaved 1F1B (Narayanan et al., 2021): every rank has `chunks` stages, and micro-batches pass
// in groups: all of a group through the rank's first chunk, then all of it through the second, and
// so on; backwards in the same groups with the chunks reversed.
//
// A group is never smaller than the number of ranks (unless there are fewer micro-batches):
// otherwise its first micro-batch would not be back from the last rank when the first rank needs it
// for the next chunk. A number of micro-batches that is not a multiple of the ranks is therefore
// cut into fewer groups, some larger by one or more, and not into full groups and a remainder; the
// bubble is then as small as for a multiple, for a little more memory.
#include <algorithm>
#include <cstdint>
#include <utility>

#include "base/check.h"
#include "schedule/generators/lanes.h"
#include "schedule/schedule.h"

namespace trireme::schedule {
namespace {

// Returns (chunk, micro-batch) in the order of the forwards; for the order of the backwards chunks
// count from the last.
std::vector<std::pair<int, int>> order_of(int microbatches, int groups, int chunks) {
  std::vector<std::pair<int, int>> order;
  int first = 0;
  for (int group = 0; group < groups; ++group) {
    const int size = microbatches / groups + (group < microbatches % groups ? 1 : 0);
    for (int chunk = 0; chunk < chunks; ++chunk) {
      for (int m = first; m < first + size; ++m) order.emplace_back(chunk, m);
    }
    first += size;
  }
  return order;
}

}  // namespace

Schedule interleaved(int ranks, int microbatches, int chunks) {
  TRIREME_CHECK(chunks >= 1, "{} chunks", chunks);
  Schedule schedule = empty_schedule(ranks, microbatches, {looping_lane(ranks, chunks)});
  const int groups = std::max(1, microbatches / ranks);
  const int largest = (microbatches + groups - 1) / groups;
  const std::vector<std::pair<int, int>> order = order_of(microbatches, groups, chunks);
  const int count = static_cast<int>(order.size());
  for (int rank = 0; rank < ranks; ++rank) {
    std::vector<Action>& program = schedule.program[static_cast<size_t>(rank)];
    const auto add = [&](Op op, int chunk, int m) {
      program.push_back({op, static_cast<int16_t>(chunk * ranks + rank), -1, m});
    };
    // With one chunk: 1F1B. With more, a gradient takes two steps from rank to rank, since every
    // other step of the neighbour is a forward of another chunk.
    const int ahead = std::min(
        chunks == 1 ? ranks - 1 - rank : (chunks - 1) * largest + 2 * (ranks - 1 - rank), count);
    for (int k = 0; k < count + ahead; ++k) {
      if (k < count)
        add(Op::F, order[static_cast<size_t>(k)].first, order[static_cast<size_t>(k)].second);
      if (k < ahead) continue;
      const auto [chunk, m] = order[static_cast<size_t>(k - ahead)];
      add(Op::BW, chunks - 1 - chunk, m);
    }
  }
  return schedule;
}

}  // namespace trireme::schedule
