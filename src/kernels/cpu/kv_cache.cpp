// SPDX-License-Identifier: Apache-2.0
// d[rows[t]] = x[t] and its inverse, and o = softmax(scale q k^T) v over cached keys and values.
//
// A task is one key head of a few neighbouring queries of the same sequence. Each cached row is
// read once for all of them: keys for the scores, then values. Sums are taken in the order of
// cached tokens, independent of the other queries.
#include <cstring>
#include <limits>
#include <utility>

#include "kernels/cpu/segment.h"
#include "kernels/cpu/table_ops.h"
#include "kernels/cpu/vector_math.h"

namespace trireme::kernels::cpu {
namespace {

void scatter(base::ThreadPool& pool, const ScatterRowsArgs& args) {
  const auto row_bytes = static_cast<size_t>(args.x.cols() * base::size_of(args.x.dtype));
  const int64_t size = base::size_of(args.x.dtype);
  for_each_row(pool, args.x.rows(), args.x.cols(), [&](int64_t t) {
    const int64_t row = index_at(args.rows, t);
    if (row < 0) return;
    TRIREME_CHECK(row < args.d.rows(), "row {} of {}", row, args.d.rows());
    std::memcpy(args.d.data + row * args.d.row_stride * size,
                args.x.data + t * args.x.row_stride * size, row_bytes);
  });
}

void gather(base::ThreadPool& pool, const GatherRowsArgs& args) {
  const auto row_bytes = static_cast<size_t>(args.d.cols() * base::size_of(args.d.dtype));
  const int64_t size = base::size_of(args.d.dtype);
  for_each_row(pool, args.d.rows(), args.d.cols(), [&](int64_t t) {
    const int64_t row = index_at(args.rows, t);
    TRIREME_CHECK(row >= 0 && row < args.x.rows(), "row {} of {}", row, args.x.rows());
    std::memcpy(args.d.data + t * args.d.row_stride * size,
                args.x.data + row * args.x.row_stride * size, row_bytes);
  });
}

constexpr int64_t max_queries = 8;  // of a task

struct CachedMemory;  // tag of thread_floats()

float dot(const float* a, const float* b, int64_t count) {
  float sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t i = 0; i < count; ++i) sum += a[i] * b[i];
  return sum;
}

// scores[j] = exp(score - highest score); returns their sum.
float exponentiate(float* scores, int64_t count) {
  float highest = -std::numeric_limits<float>::infinity();
#pragma omp simd reduction(max : highest)
  for (int64_t j = 0; j < count; ++j) highest = scores[j] > highest ? scores[j] : highest;
  float sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t j = 0; j < count; ++j) {
    scores[j] = exp_of(scores[j] - highest);
    sum += scores[j];
  }
  return sum;
}

// Queries [first, first + count) of the query heads that read key head g. All queries have the same
// first row.
void attend(const AttentionCachedArgs& args, int64_t first, int64_t count, int64_t g) {
  const int64_t K = args.q.shape[2], G = args.cache.shape[1] / 2, heads = args.q.shape[1] / G;
  const int64_t begin = index_at(args.first_rows, first);
  int64_t lengths[max_queries] = {}, longest = 0;
  for (int64_t i = 0; i < count; ++i) {
    lengths[i] = index_at(args.lengths, first + i);
    TRIREME_CHECK(
        lengths[i] >= 0 && lengths[i] <= args.max_length && begin + lengths[i] <= args.cache.rows(),
        "{} tokens from row {} of {}, at most {}", lengths[i], begin, args.cache.rows(),
        args.max_length);
    longest = std::max(longest, lengths[i]);
  }
  float* next = thread_floats<CachedMemory>(count * heads * (longest + 2 * K + 1) + K);
  const auto take = [&next](int64_t floats) { return std::exchange(next, next + floats); };
  float* scores = take(count * heads * longest);  // [query, head, cached token]
  float* q = take(count * heads * K);
  float* sums = take(count * heads * K);
  float* totals = take(count * heads);
  float* buffer = take(K);

  for (int64_t i = 0; i < count; ++i) {
    const Segment s = {first + i, g * heads * K, heads * K};
    float* to = q + i * heads * K;
    const float* from = values_of(args.q, s, to);
#pragma omp simd
    for (int64_t c = 0; c < heads * K; ++c) to[c] = from[c] * args.scale;
  }
  for (int64_t j = 0; j < longest; ++j) {
    const float* k = values_of(args.cache, {begin + j, g * K, K}, buffer);
    for (int64_t i = 0; i < count; ++i) {
      if (j >= lengths[i]) continue;
      for (int64_t h = 0; h < heads; ++h) {
        const int64_t row = i * heads + h;
        scores[row * longest + j] = dot(q + row * K, k, K);
      }
    }
  }
  for (int64_t row = 0; row < count * heads; ++row) {
    totals[row] = exponentiate(scores + row * longest, lengths[row / heads]);
  }
  std::fill_n(sums, count * heads * K, 0.0F);
  for (int64_t j = 0; j < longest; ++j) {
    const float* v = values_of(args.cache, {begin + j, (G + g) * K, K}, buffer);
    for (int64_t i = 0; i < count; ++i) {
      if (j >= lengths[i]) continue;
      for (int64_t h = 0; h < heads; ++h) {
        const int64_t row = i * heads + h;
        const float weight = scores[row * longest + j];
        float* sum = sums + row * K;
#pragma omp simd
        for (int64_t c = 0; c < K; ++c) sum[c] += weight * v[c];
      }
    }
  }
  for (int64_t i = 0; i < count; ++i) {
    for (int64_t h = 0; h < heads; ++h) {
      const int64_t row = i * heads + h;
      const float factor = lengths[i] == 0 ? 0.0F : 1 / totals[row];
      float* sum = sums + row * K;
#pragma omp simd
      for (int64_t c = 0; c < K; ++c) sum[c] *= factor;
      store(args.o, {first + i, (g * heads + h) * K, K}, sum);
    }
  }
}

void attend_all(base::ThreadPool& pool, const AttentionCachedArgs& args) {
  const int64_t T = args.q.rows(), G = args.cache.shape[1] / 2;
  const int64_t blocks = divide_up(T, max_queries);
  pool.for_each(blocks * G, [&](int64_t task) {
    const int64_t end = std::min(T, (task / G + 1) * max_queries);
    for (int64_t first = task / G * max_queries; first < end;) {
      int64_t next = first + 1;
      while (next < end && index_at(args.first_rows, next) == index_at(args.first_rows, first)) {
        ++next;
      }
      attend(args, first, next - first, task % G);
      first = next;
    }
  });
}

}  // namespace

void scatter_rows(Stream& stream, const ScatterRowsArgs& args) { run_on(stream, args, scatter); }

void gather_rows(Stream& stream, const GatherRowsArgs& args) { run_on(stream, args, gather); }

void attention_cached(Stream& stream, const AttentionCachedArgs& args) {
  run_on(stream, args, attend_all);
}

}  // namespace trireme::kernels::cpu
