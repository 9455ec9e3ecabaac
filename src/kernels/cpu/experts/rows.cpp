// SPDX-License-Identifier: Apache-2.0
// The rows of experts: which pair has which row, and moving rows between pairs and groups.
//
// Rows are assigned by one thread, in two passes over the choices: the count of every expert, then
// rows in order of the pair. That is little against the products of those rows.
#include <cstring>

#include "base/shape.h"
#include "kernels/cpu/segment.h"
#include "kernels/cpu/table_ops.h"

namespace trireme::kernels::cpu {
namespace {

using spec::RouterStats;

const int32_t* ints_of(const ConstTensor& t) { return reinterpret_cast<const int32_t*>(t.data); }
int32_t* ints_of(const Tensor& t) { return reinterpret_cast<int32_t*>(t.data); }

// The rows of an expert: those before `end` are given to its pairs in order.
struct RowRange {
  int64_t next = 0, end = 0;
};

// counts and starts of RouteRowsArgs from the number of pairs of every expert. Returns the pairs
// beyond the rows of their block.
int64_t divide_rows(const RouteRowsArgs& a, const std::vector<int64_t>& pairs,
                    std::vector<RowRange>& ranges) {
  const int64_t block_rows = a.pair.rows() / a.blocks, block_experts = a.experts / a.blocks;
  int64_t next = 0, overflow = 0;
  for (int64_t e = 0; e < a.experts; ++e) {
    const int64_t block = e / block_experts;
    if (e % block_experts == 0) next = block * block_rows;
    const int64_t count = pairs[static_cast<size_t>(e)];
    const int64_t allowed = a.capacity > 0 ? std::min(count, a.capacity) : count;
    const int64_t rows = std::min(allowed, (block + 1) * block_rows - next);
    overflow += allowed - rows;
    ints_of(a.starts)[e] = static_cast<int32_t>(next);
    ints_of(a.counts)[e] = static_cast<int32_t>(rows);
    ranges[static_cast<size_t>(e)] = {next, next + rows};
    next += base::round_up(rows, a.tile);
  }
  ints_of(a.starts)[a.experts] = static_cast<int32_t>(next);
  return overflow;
}

void assign_rows(base::ThreadPool& /*pool*/, const RouteRowsArgs& a) {
  const int64_t T = a.choice.rows(), K = a.choice.cols();
  thread_local std::vector<int64_t> pairs;
  thread_local std::vector<RowRange> ranges;
  pairs.assign(static_cast<size_t>(a.experts), 0);
  ranges.resize(static_cast<size_t>(a.experts));
  const int32_t* choice = ints_of(a.choice);
  for (int64_t i = 0; i < T * K; ++i) {
    TRIREME_CHECK(choice[i] >= 0 && choice[i] < a.experts, "route_rows: pair {} of expert {} of {}",
                  i, choice[i], a.experts);
    ++pairs[static_cast<size_t>(choice[i])];
  }
  const int64_t overflow = divide_rows(a, pairs, ranges);

  int32_t* place = ints_of(a.place);
  int32_t* pair = ints_of(a.pair);
  std::fill_n(pair, a.pair.rows(), -1);
  int64_t dropped = 0, lost = 0;
  for (int64_t t = 0; t < T; ++t) {
    int64_t without = 0;
    for (int64_t i = t * K; i < (t + 1) * K; ++i) {
      RowRange& range = ranges[static_cast<size_t>(choice[i])];
      const bool has_row = range.next < range.end;
      place[i] = has_row ? static_cast<int32_t>(range.next) : -1;
      if (has_row) pair[range.next++] = static_cast<int32_t>(i);
      if (!has_row) ++without;
    }
    dropped += without;
    if (without == K) ++lost;
  }
  if (!a.stats) return;
  const RouterStats at = {a.experts};
  float* stats = floats_at(a.stats, 0);
  stats[at.dropped()] += static_cast<float>(dropped);
  stats[at.lost()] += static_cast<float>(lost);
  stats[at.overflow()] += static_cast<float>(overflow);
}

void arrange(base::ThreadPool& /*pool*/, const ArrangeRowsArgs& a) {
  const int64_t blocks = a.counts.rows(), groups = a.counts.cols();
  const int64_t block_rows = a.place.rows() / blocks;
  const int32_t* counts = ints_of(a.counts);
  int32_t* place = ints_of(a.place);
  int32_t* source = ints_of(a.source);
  std::fill_n(place, a.place.rows(), -1);
  std::fill_n(source, a.source.rows(), -1);
  thread_local std::vector<int64_t> next_of_block;
  next_of_block.resize(static_cast<size_t>(blocks));
  for (int64_t b = 0; b < blocks; ++b) next_of_block[static_cast<size_t>(b)] = b * block_rows;
  int64_t next = 0;
  for (int64_t g = 0; g < groups; ++g) {
    ints_of(a.starts)[g] = static_cast<int32_t>(next);
    for (int64_t b = 0; b < blocks; ++b) {
      int64_t& row = next_of_block[static_cast<size_t>(b)];
      const int64_t count = counts[b * groups + g];
      TRIREME_CHECK(count >= 0 && row + count <= (b + 1) * block_rows,
                    "arrange_rows: {} rows of group {} in block {} of {} rows", count, g, b,
                    block_rows);
      for (int64_t i = 0; i < count; ++i, ++row, ++next) {
        place[row] = static_cast<int32_t>(next);
        source[next] = static_cast<int32_t>(row);
      }
    }
    next = base::round_up(next, a.tile);
  }
  ints_of(a.starts)[groups] = static_cast<int32_t>(next);
}

void gather(base::ThreadPool& pool, const GatherPairsArgs& a) {
  const int64_t size = base::size_of(a.d.dtype);
  const auto bytes = static_cast<size_t>(a.d.cols() * size);
  const int64_t end = a.end ? index_at(a.end, 0) : a.d.rows();
  for_each_row(pool, end, a.d.cols(), [&](int64_t r) {
    const int64_t source = index_at(a.source, r);
    std::byte* to = a.d.data + r * a.d.row_stride * size;
    if (source < 0) {
      std::memset(to, 0, bytes);
    } else {
      std::memcpy(to, a.x.data + source / a.divisor * a.x.row_stride * size, bytes);
    }
  });
}

void sum(base::ThreadPool& pool, const SumPairsArgs& a) {
  const int64_t K = a.place.cols();
  for_each_segment(pool, {a.y.rows(), a.y.cols()}, [&](const Segment& s) {
    SegmentBuffer total, buffer;
    std::fill_n(total, s.count, 0.0F);
    const auto add = [&](const ConstTensor& x, const Segment& from) {
      const float* values = values_of(x, from, buffer);
#pragma omp simd
      for (int64_t i = 0; i < s.count; ++i) total[i] += values[i];
    };
    if (a.residual) add(a.residual, s);
    if (a.other) add(a.other, s);
    for (int64_t k = 0; k < K; ++k) {
      const int32_t row = ints_of(a.place)[s.row * K + k];
      if (row >= 0) add(a.rows, {row, s.first, s.count});
    }
    store(a.y, s, total);
  });
}

}  // namespace

void route_rows(Stream& stream, const RouteRowsArgs& args) { run_on(stream, args, assign_rows); }
void arrange_rows(Stream& stream, const ArrangeRowsArgs& args) { run_on(stream, args, arrange); }
void gather_pairs(Stream& stream, const GatherPairsArgs& args) { run_on(stream, args, gather); }
void sum_pairs(Stream& stream, const SumPairsArgs& args) { run_on(stream, args, sum); }

}  // namespace trireme::kernels::cpu
