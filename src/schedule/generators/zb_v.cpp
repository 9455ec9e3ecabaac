// SPDX-License-Identifier: Apache-2.0
// ZB-V (Qi et al., 2024): two chunks per rank, down the ranks and up again, so that the first
// backward starts on rank 0, where the first forward did. With F, B and W equally long no rank
// waits between its first action and its last, and every rank keeps 2 * ranks chunks: as much as
// the first rank of 1F1B, whose stages are twice as large.
//
// The order is made for at least 2 * ranks - 1 micro-batches; with fewer, the actions of the
// missing ones are left out.
#include <algorithm>
#include <array>
#include <cstdint>

#include "schedule/generators/lanes.h"
#include "schedule/schedule.h"

namespace trireme::schedule {

Schedule zb_v(int ranks, int microbatches) {
  Schedule schedule = empty_schedule(ranks, microbatches, {v_lane(ranks)});
  const int count = std::max(microbatches, 2 * ranks - 1);
  for (int rank = 0; rank < ranks; ++rank) {
    std::vector<Action>& program = schedule.program[static_cast<size_t>(rank)];
    const std::array<int, 2> stage = {rank, 2 * ranks - 1 - rank};
    std::array<int, 2> f = {}, b = {}, w = {};  // the number that have run, by chunk
    const auto add = [&](Op op, int chunk, std::array<int, 2>& done) {
      const auto c = static_cast<size_t>(chunk);
      const int m = done[c]++;
      if (m >= microbatches) return;
      program.push_back({op, static_cast<int16_t>(stage[c]), -1, m});
    };
    const auto backward = [&](int chunk) {
      add(Op::B, chunk, b);
      add(Op::W, chunk, w);
    };
    // Fill: until the first micro-batch has gone down and up, then as fast as they return.
    for (int i = 0; i < 2 * (ranks - rank) - 1; ++i) add(Op::F, 0, f);
    for (int i = 0; i < rank; ++i) {
      add(Op::F, 1, f);
      add(Op::F, 0, f);
    }
    for (int i = 0; i < ranks - rank; ++i) {
      add(Op::F, 1, f);
      backward(1);
    }
    // Steady: each chunk in turn.
    while (f[1] < count) {
      if (f[0] < count) add(Op::F, 0, f);
      backward(0);
      add(Op::F, 1, f);
      backward(1);
    }
    // Drain: input gradients first; weight gradients when a rank would wait.
    for (int i = 0; i < rank; ++i) {
      add(Op::B, 0, b);
      add(Op::B, 1, b);
    }
    for (int i = 0; i < ranks - rank; ++i) {
      add(Op::B, 0, b);
      add(Op::W, 0, w);
    }
    while (w[1] < count) add(Op::W, 1, w);
    while (w[0] < count) add(Op::W, 0, w);
  }
  return schedule;
}

}  // namespace trireme::schedule
