// SPDX-License-Identifier: Apache-2.0
// Sums of squares on the CPU: of a segment, and of the change of weights while they are updated.
#pragma once

#include <algorithm>

#include "kernels/args.h"
#include "kernels/cpu/segment.h"
#include "kernels/step_state.h"

namespace trireme::kernels::cpu {

// Adds the squares of a segment's values, in blocks of WideSum::block_elements.
void add_squares_of(const float* x, int64_t count, WideSum& sum);
// Threads add at the same time; integer sums have no order.
void add_atomically(const WideSum& from, WideSum& to);

// Calls update(segment, changes) for the segments of a flat tensor of weights. If `changes` is not
// null, the function writes to it the change of each weight of the segment, of which those that
// count are squared and added.
template <typename Update>
void update_segments(base::ThreadPool& pool, int64_t elements, const ChangeSquares& counted,
                     const Update& update) {
  pool.for_each(divide_up(elements, task_elements), [&](int64_t task) {
    WideSum sum{};
    const int64_t end = std::min(elements, (task + 1) * task_elements);
    for (int64_t first = task * task_elements; first < end; first += max_segment) {
      const Segment s = {0, first, std::min(max_segment, end - first)};
      const int64_t from = std::max(counted.begin, first);
      const int64_t to = std::min(counted.end, first + s.count);
      SegmentBuffer changes;
      const bool is_counted = counted.sum && from < to;
      update(s, is_counted ? changes : nullptr);
      if (is_counted) add_squares_of(changes + (from - first), to - from, sum);
    }
    if (counted.sum) add_atomically(sum, *reinterpret_cast<WideSum*>(counted.sum.data));
  });
}

}  // namespace trireme::kernels::cpu
