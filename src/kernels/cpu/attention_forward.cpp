// SPDX-License-Identifier: Apache-2.0
// o = softmax(scale q k^T + mask) v, one block of keys after the other. For each query the highest
// score m, the sum l of exp(score - m) and the weighted sum of values are kept, and rescaled when m
// grows (online softmax: Milakov and Gimelshein, 2018; Dao et al., 2022). lse = m + log l.
#include <cmath>
#include <limits>
#include <utility>

#include "kernels/cpu/attention_blocks.h"
#include "kernels/cpu/table_ops.h"
#include "kernels/cpu/vector_math.h"

namespace trireme::kernels::cpu {
namespace {

struct ForwardMemory;  // tag of thread_floats()

// Memory of one block of queries.
struct Workspace {
  explicit Workspace(int64_t width) {
    float* next = thread_floats<ForwardMemory>(query_block * key_block +
                                               width * (3 * query_block + 2 * key_block));
    const auto take = [&next](int64_t count) { return std::exchange(next, next + count); };
    q = take(query_block * width);
    qt = {take(width * query_block), query_block};
    scores = {take(key_block * query_block), query_block};
    sums = {take(query_block * width), width};
    k = take(key_block * width);
    v = take(key_block * width);
  }

  float* q;
  MutableBlock qt;      // [K, query]: scale q^T
  MutableBlock scores;  // [key, query]: scores, then exp(score - highest)
  MutableBlock sums;    // [query, K]: sum of exp(score - highest) v
  float* k;
  float* v;
  float highest[query_block];
  float total[query_block];  // sum of exp(score - highest)
};

// Scores of the keys in k, masked, and the new highest score of every query.
void score(Workspace& w, const Visible& visible, const ConstBlock& k, int64_t width,
           float (&highest)[query_block]) {
  constexpr float minus_infinity = -std::numeric_limits<float>::infinity();
  std::copy_n(w.highest, query_block, highest);
  for (int64_t j0 = 0; j0 < visible.padded_keys; j0 += cell) {
    const InnerRange queries = visible.queries_of(j0);
    multiply_rows<Into::set>(k, w.qt, w.scores, j0, queries, {0, width});
    for (int64_t j = j0; j < j0 + cell; ++j) {
      float* row = w.scores.at(j, 0);
      const int64_t seen = visible.first_query_of(j);
      for (int64_t i = queries.begin; i < seen; ++i) row[i] = minus_infinity;
#pragma omp simd
      for (int64_t i = queries.begin; i < queries.end; ++i) {
        highest[i] = row[i] > highest[i] ? row[i] : highest[i];
      }
    }
  }
}

// Replaces scores by exp(score - highest), and rescales the sums of an earlier `highest`.
void exponentiate(Workspace& w, const Visible& visible, int64_t width,
                  const float (&highest)[query_block]) {
  float factors[query_block];
#pragma omp simd
  for (int64_t i = 0; i < query_block; ++i) {
    factors[i] = exp_of(w.highest[i] - highest[i]);
    w.highest[i] = highest[i];
    w.total[i] *= factors[i];
  }
  for (int64_t i = 0; i < visible.padded_queries; ++i) {
    const float factor = factors[i];
    float* row = w.sums.at(i, 0);
#pragma omp simd
    for (int64_t c = 0; c < width; ++c) row[c] *= factor;
  }
  for (int64_t j = 0; j < visible.padded_keys; ++j) {
    const InnerRange queries = visible.queries_of(j / cell * cell);
    float* row = w.scores.at(j, 0);
#pragma omp simd
    for (int64_t i = queries.begin; i < queries.end; ++i) {
      row[i] = exp_of(row[i] - highest[i]);
      w.total[i] += row[i];
    }
  }
}

// Queries [first, first + count) of head h, all of the sequence [seq_begin, seq_end).
void attend(const AttentionForwardArgs& args, const HeadRows& queries, int64_t seq_begin,
            int64_t seq_end) {
  const int64_t width = queries.padded_K();
  const int64_t kv_head = queries.head / (args.q.shape[1] / args.k.shape[1]);
  Workspace w(width);
  float* lse = floats_at(args.lse, 0) +
               lse_index(args.q.shape[1], queries.head, queries.first, seq_begin, seq_end);
  transpose(block_of(args.q, queries, w.q), queries.padded_count(), width, args.scale, w.qt);
  std::fill_n(w.highest, query_block, -std::numeric_limits<float>::infinity());
  std::fill_n(w.total, query_block, 0.0F);
  std::fill_n(w.sums.data, query_block * width, 0.0F);

  const int64_t keys_end = args.causal ? queries.first + queries.count : seq_end;
  for (int64_t first = seq_begin; first < keys_end; first += key_block) {
    const HeadRows keys = {first, std::min(key_block, keys_end - first), kv_head, queries.K};
    const Visible visible = {.causal = args.causal,
                             .offset = queries.first - first,
                             .keys = keys.count,
                             .padded_keys = keys.padded_count(),
                             .padded_queries = queries.padded_count()};
    float highest[query_block];
    score(w, visible, block_of(args.k, keys, w.k), width, highest);
    exponentiate(w, visible, width, highest);
    const ConstBlock v = block_of(args.v, keys, w.v);
    for (int64_t i = 0; i < visible.padded_queries; i += cell) {
      add_transposed_rows(w.scores, v, w.sums, i, {0, width}, visible.keys_of(i));
    }
  }

  for (int64_t i = 0; i < queries.count; ++i) {
    const int64_t t = queries.first + i;
    const float factor = 1 / w.total[i];
    float* row = w.sums.at(i, 0);
#pragma omp simd
    for (int64_t c = 0; c < width; ++c) row[c] *= factor;
    store(args.o, {t, queries.head * queries.K, queries.K}, row);
    lse[i] = w.highest[i] + std::log(w.total[i]);
  }
}

// A task is one head and query_block tokens, which may belong to several sequences.
void forward(base::ThreadPool& pool, const AttentionForwardArgs& args) {
  const int64_t T = args.q.shape[0], H = args.q.shape[1], K = args.q.shape[2];
  const auto* offsets = reinterpret_cast<const int32_t*>(args.seq_offsets.data);
  const int32_t* offsets_end = offsets + args.seq_offsets.rows();
  const int64_t blocks = divide_up(T, query_block);
  pool.for_each(blocks * H, [&](int64_t task) {
    const int64_t block_begin = task / H * query_block;
    const int64_t block_end = std::min(T, block_begin + query_block);
    int64_t first = block_begin;
    while (first < block_end) {
      const int32_t* seq_end = std::upper_bound(offsets, offsets_end, first);
      TRIREME_CHECK(seq_end != offsets && seq_end != offsets_end, "token {} is in no sequence",
                    first);
      const int64_t end = std::min<int64_t>(block_end, *seq_end);
      attend(args, {first, end - first, task % H, K}, seq_end[-1], *seq_end);
      first = end;
    }
  });
}

}  // namespace

void attention_forward(Stream& stream, const AttentionForwardArgs& args) {
  run_on(stream, args, forward);
}

}  // namespace trireme::kernels::cpu
