// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/squares.h"

#include <atomic>

#include "kernels/cpu/table_ops.h"
#include "kernels/wide_sum.h"

namespace trireme::kernels::cpu {
namespace {

static_assert(max_segment % WideSum::block_elements == 0);
static_assert(task_elements % max_segment == 0);
constexpr int64_t blocks_per_segment = max_segment / WideSum::block_elements;

void add_squares(base::ThreadPool& pool, const SumSquaresArgs& args) {
  auto& squares = *reinterpret_cast<WideSum*>(args.squares.data);
  const int64_t count = args.x.elements();
  pool.for_each(divide_up(count, task_elements), [&](int64_t task) {
    WideSum sum{};
    SegmentBuffer buffer;
    const int64_t end = std::min(count, (task + 1) * task_elements);
    for (int64_t first = task * task_elements; first < end; first += max_segment) {
      const Segment s = {0, first, std::min(max_segment, end - first)};
      add_squares_of(values_of(args.x, s, buffer), s.count, sum);
    }
    add_atomically(sum, squares);
  });
}

}  // namespace

// A block is summed from left to right, which is one chain of additions; the blocks of a segment
// run side by side.
void add_squares_of(const float* x, int64_t count, WideSum& sum) {
  constexpr int64_t block = WideSum::block_elements;
  double block_sums[blocks_per_segment] = {};
  if (count == max_segment) {
    for (int64_t i = 0; i < block; ++i) {
      for (int64_t b = 0; b < blocks_per_segment; ++b) {
        const auto value = static_cast<double>(x[b * block + i]);
        block_sums[b] += value * value;
      }
    }
  } else {
    for (int64_t i = 0; i < count; ++i) {
      const auto value = static_cast<double>(x[i]);
      block_sums[i / block] += value * value;
    }
  }
  for (const double block_sum : block_sums) add_block_sum(sum, block_sum);
}

void add_atomically(const WideSum& from, WideSum& to) {
  for (int i = 0; i < WideSum::limbs; ++i) {
    if (from.limb[i] != 0) std::atomic_ref(to.limb[i]).fetch_add(from.limb[i]);
  }
  if (from.not_finite != 0) std::atomic_ref(to.not_finite).fetch_add(from.not_finite);
}

void sum_squares(Stream& stream, const SumSquaresArgs& args) { run_on(stream, args, add_squares); }

}  // namespace trireme::kernels::cpu
