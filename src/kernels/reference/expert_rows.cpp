// SPDX-License-Identifier: Apache-2.0
// The rows of experts: which pair has which row, and moving rows between pairs and groups.
#include <algorithm>
#include <vector>

#include "base/shape.h"
#include "kernels/reference/matrix.h"
#include "kernels/reference/table_ops.h"

namespace trireme::kernels::reference {
namespace {

using spec::RouterStats;

const int32_t* ints_of(const ConstTensor& t) { return reinterpret_cast<const int32_t*>(t.data); }
int32_t* ints_of(const Tensor& t) { return reinterpret_cast<int32_t*>(t.data); }

// One expert after the other takes its pairs in order, one pair after the other its row.
void route(const RouteRowsArgs& a) {
  const int64_t pairs = a.choice.elements(), K = a.choice.cols(), E = a.experts;
  const int64_t block_rows = a.pair.rows() / a.blocks, block_experts = E / a.blocks;
  std::vector<int32_t> place(static_cast<size_t>(pairs), -1);
  std::vector<int32_t> pair(static_cast<size_t>(a.pair.rows()), -1);
  int64_t overflow = 0, next = 0;
  for (int64_t e = 0; e < E; ++e) {
    const int64_t block = e / block_experts, block_end = (block + 1) * block_rows;
    if (e % block_experts == 0) next = block * block_rows;
    ints_of(a.starts)[e] = static_cast<int32_t>(next);
    int64_t rows = 0, within_capacity = 0;
    for (int64_t i = 0; i < pairs; ++i) {
      if (ints_of(a.choice)[i] != e) continue;
      if (a.capacity > 0 && within_capacity == a.capacity) continue;
      ++within_capacity;
      if (next + rows >= block_end) {
        ++overflow;
        continue;
      }
      place[static_cast<size_t>(i)] = static_cast<int32_t>(next + rows);
      pair[static_cast<size_t>(next + rows)] = static_cast<int32_t>(i);
      ++rows;
    }
    ints_of(a.counts)[e] = static_cast<int32_t>(rows);
    next += base::round_up(rows, a.tile);
  }
  ints_of(a.starts)[E] = static_cast<int32_t>(next);
  std::ranges::copy(place, ints_of(a.place));
  std::ranges::copy(pair, ints_of(a.pair));
  if (!a.stats) return;
  const RouterStats at = {E};
  Matrix stats = read(a.stats);
  stats(at.overflow()) += static_cast<double>(overflow);
  for (int64_t first = 0; first < pairs; first += K) {
    const auto of_token = place.begin() + first;
    const auto without = std::count(of_token, of_token + K, -1);
    stats(at.dropped()) += static_cast<double>(without);
    if (without == K) stats(at.lost()) += 1;
  }
  write(a.stats, stats);
}

void arrange(const ArrangeRowsArgs& a) {
  const int64_t blocks = a.counts.rows(), groups = a.counts.cols();
  const int64_t block_rows = a.place.rows() / blocks;
  std::vector<int32_t> place(static_cast<size_t>(a.place.rows()), -1);
  std::vector<int32_t> source(static_cast<size_t>(a.source.rows()), -1);
  const int32_t* counts = ints_of(a.counts);
  int64_t next = 0;
  for (int64_t g = 0; g < groups; ++g) {
    ints_of(a.starts)[g] = static_cast<int32_t>(next);
    for (int64_t b = 0; b < blocks; ++b) {
      int64_t row = b * block_rows;
      for (int64_t before = 0; before < g; ++before) row += counts[b * groups + before];
      for (int64_t i = 0; i < counts[b * groups + g]; ++i) {
        place[static_cast<size_t>(row + i)] = static_cast<int32_t>(next);
        source[static_cast<size_t>(next)] = static_cast<int32_t>(row + i);
        ++next;
      }
    }
    next = base::round_up(next, a.tile);
  }
  ints_of(a.starts)[groups] = static_cast<int32_t>(next);
  std::ranges::copy(place, ints_of(a.place));
  std::ranges::copy(source, ints_of(a.source));
}

}  // namespace

void route_rows(Stream& stream, const RouteRowsArgs& args) {
  run_on(stream, [args] { route(args); });
}

void arrange_rows(Stream& stream, const ArrangeRowsArgs& args) {
  run_on(stream, [args] { arrange(args); });
}

void gather_pairs(Stream& stream, const GatherPairsArgs& args) {
  run_on(stream, [args] {
    const Matrix x = read(args.x);
    const int64_t end = args.end ? read_index(args.end, 0) : args.d.rows();
    Matrix d(end, args.d.cols());
    for (int64_t r = 0; r < end; ++r) {
      const int64_t source = read_index(args.source, r);
      for (int64_t c = 0; source >= 0 && c < d.cols; ++c) d(r, c) = x(source / args.divisor, c);
    }
    write(args.d.slice_rows(0, end), d);
  });
}

void sum_pairs(Stream& stream, const SumPairsArgs& args) {
  run_on(stream, [args] {
    const Matrix rows = read(args.rows), residual = read(args.residual), other = read(args.other);
    const int64_t K = args.place.cols();
    Matrix y(args.y.rows(), args.y.cols());
    for (int64_t t = 0; t < y.rows; ++t) {
      for (int64_t c = 0; c < y.cols; ++c) {
        if (args.residual) y(t, c) += residual(t, c);
        if (args.other) y(t, c) += other(t, c);
        for (int64_t k = 0; k < K; ++k) {
          const int32_t row = ints_of(args.place)[t * K + k];
          if (row >= 0) y(t, c) += rows(row, c);
        }
      }
    }
    write(args.y, y);
  });
}

}  // namespace trireme::kernels::reference
