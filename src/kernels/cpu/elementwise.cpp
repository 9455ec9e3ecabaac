// SPDX-License-Identifier: Apache-2.0
// Ops that set, move or add elements: fill, copy, accumulate, init_normal.
#include <cmath>
#include <cstring>

#include "base/rng.h"
#include "base/split_float.h"
#include "kernels/cpu/segment.h"
#include "kernels/cpu/table_ops.h"

namespace trireme::kernels::cpu {
namespace {

void fill_all(base::ThreadPool& pool, const FillArgs& args) {
  for_each_segment(pool, common_extent(args.d, args.d), [&](const Segment& s) {
    if (!base::is_real(args.d.dtype)) {
      const int64_t size = base::size_of(args.d.dtype);
      std::memset(args.d.data + (s.row * args.d.row_stride + s.first) * size, 0,
                  static_cast<size_t>(s.count * size));
      return;
    }
    SegmentBuffer buffer;
    float* d = place_for(args.d, s, buffer);
    std::fill_n(d, s.count, args.value);
    store(args.d, s, d);
  });
}

// Equal types are copied as bytes: every NaN keeps its bits.
void copy_all(base::ThreadPool& pool, const CopyArgs& args) {
  for_each_segment(pool, common_extent(args.x, args.d), [&](const Segment& s) {
    if (args.low) {
      return base::split_floats(floats_at(args.x, 0) + s.first, s.count, u16_at(args.d, s),
                                u16_at(args.low, s));
    }
    if (args.x.dtype == args.d.dtype) {
      const int64_t size = base::size_of(args.d.dtype);
      std::memmove(args.d.data + (s.row * args.d.row_stride + s.first) * size,
                   args.x.data + (s.row * args.x.row_stride + s.first) * size,
                   static_cast<size_t>(s.count * size));
      return;
    }
    SegmentBuffer buffer;
    store(args.d, s, values_of(args.x, s, buffer));
  });
}

void accumulate_all(base::ThreadPool& pool, const AccumulateArgs& args) {
  for_each_segment(pool, common_extent(args.x, args.d), [&](const Segment& s) {
    SegmentBuffer xs, olds, sums;
    const float* x = values_of(args.x, s, xs);
    const float* old = values_of(args.d, s, olds);
    float* d = place_for(args.d, s, sums);
    if (args.is_max) {
      for (int64_t i = 0; i < s.count; ++i)
        d[i] = x[i] > old[i] || std::isnan(x[i]) ? x[i] : old[i];
    } else {
#pragma omp simd
      for (int64_t i = 0; i < s.count; ++i) d[i] = old[i] + x[i];
    }
    store(args.d, s, d);
  });
}

void draw_all(base::ThreadPool& pool, const InitNormalArgs& args) {
  for_each_segment(pool, {args.d.rows(), args.d.cols()}, [&](const Segment& s) {
    const uint64_t first = args.first + static_cast<uint64_t>(s.row) * args.global_row_stride +
                           static_cast<uint64_t>(s.first);
    SegmentBuffer buffer;
    float* d = place_for(args.d, s, buffer);
    for (int64_t i = 0; i < s.count; ++i) {
      d[i] = base::rng_normal(args.key, first + static_cast<uint64_t>(i), args.std_dev);
    }
    store(args.d, s, d);
  });
}

}  // namespace

void fill(Stream& stream, const FillArgs& args) { run_on(stream, args, fill_all); }
void copy(Stream& stream, const CopyArgs& args) { run_on(stream, args, copy_all); }
void accumulate(Stream& stream, const AccumulateArgs& args) {
  run_on(stream, args, accumulate_all);
}
void init_normal(Stream& stream, const InitNormalArgs& args) { run_on(stream, args, draw_all); }

}  // namespace trireme::kernels::cpu
