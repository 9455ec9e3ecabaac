// SPDX-License-Identifier: Apache-2.0
// o = softmax(scale q k^T + mask) v for a block of queries, one block of keys after the other. For
// each query the highest score m, the sum l of exp(score - m) and the weighted sum of values are
// kept, and rescaled when m grows (online softmax: Milakov and Gimelshein, 2018; Dao et al., 2022).
// lse = m + log l.
//
// Mask is Visible or VisibleRanges: which pairs are computed, and which of these are hidden. The
// bits of a query's result depend on its keys and on where their blocks begin, not on the other
// queries of its block.
#pragma once

#include <cmath>
#include <limits>
#include <utility>

#include "kernels/cpu/attention/attention_blocks.h"
#include "kernels/cpu/vector_math.h"

namespace trireme::kernels::cpu {

struct ForwardMemory;  // tag of thread_floats()

// Memory of one block of queries.
struct ForwardBlock {
  explicit ForwardBlock(int64_t padded_K) : width(padded_K) {
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

  // Starts with queries that have seen no key.
  void load_queries(const ConstTensor& queries, const HeadRows& rows, float scale) {
    transpose(block_of(queries, rows, q), rows.padded_count(), width, scale, qt);
    std::fill_n(highest, query_block, -std::numeric_limits<float>::infinity());
    std::fill_n(total, query_block, 0.0F);
    std::fill_n(sums.data, query_block * width, 0.0F);
  }

  template <typename Mask>
  void add_keys(const ConstTensor& keys, const ConstTensor& values, const HeadRows& rows,
                const Mask& visible) {
    float new_highest[query_block];
    score(visible, block_of(keys, rows, k), new_highest);
    exponentiate(visible, new_highest);
    const ConstBlock value_block = block_of(values, rows, v);
    for (int64_t i = 0; i < visible.padded_queries; i += cell) {
      add_transposed_rows(scores, value_block, sums, i, {0, width}, visible.keys_of(i));
    }
  }

  // Returns the attention of query i of the block, K values. REQUIRES: it has seen a key.
  const float* finish(int64_t i) {
    const float factor = 1 / total[i];
    float* row = sums.at(i, 0);
#pragma omp simd
    for (int64_t c = 0; c < width; ++c) row[c] *= factor;
    return row;
  }
  float lse(int64_t i) const { return highest[i] + std::log(total[i]); }
  // K zeros, for a query without keys. The queries are not needed any more.
  const float* zeros() {
    std::fill_n(q, width, 0.0F);
    return q;
  }

 private:
  template <typename Mask>
  void score(const Mask& visible, const ConstBlock& keys, float (&new_highest)[query_block]);
  template <typename Mask>
  void exponentiate(const Mask& visible, const float (&new_highest)[query_block]);

  int64_t width;  // K in whole cells
  float* q;
  MutableBlock qt;      // [K, query]: scale q^T
  MutableBlock scores;  // [key, query]: scores, then exp(score - highest)
  MutableBlock sums;    // [query, K]: sum of exp(score - highest) v
  float* k;
  float* v;
  float highest[query_block];
  float total[query_block];  // sum of exp(score - highest)
};

// Scores of the keys, masked, and the new highest score of every query.
template <typename Mask>
void ForwardBlock::score(const Mask& visible, const ConstBlock& keys,
                         float (&new_highest)[query_block]) {
  constexpr float minus_infinity = -std::numeric_limits<float>::infinity();
  std::copy_n(highest, query_block, new_highest);
  for (int64_t j0 = 0; j0 < visible.padded_keys; j0 += cell) {
    const InnerRange queries = visible.queries_of(j0);
    multiply_rows<Into::set>(keys, qt, scores, j0, queries, {0, width});
    for (int64_t j = j0; j < j0 + cell; ++j) {
      float* row = scores.at(j, 0);
      visible.hide(j, queries, minus_infinity, row);
#pragma omp simd
      for (int64_t i = queries.begin; i < queries.end; ++i) {
        new_highest[i] = row[i] > new_highest[i] ? row[i] : new_highest[i];
      }
    }
  }
}

// Replaces scores by exp(score - highest), and rescales the sums of an earlier `highest`.
template <typename Mask>
void ForwardBlock::exponentiate(const Mask& visible, const float (&new_highest)[query_block]) {
  float factors[query_block];
  float subtracted[query_block];  // finite, also before the first key of a query
#pragma omp simd
  for (int64_t i = 0; i < query_block; ++i) {
    const float minus_infinity = -std::numeric_limits<float>::infinity();
    subtracted[i] = new_highest[i] == minus_infinity ? 0.0F : new_highest[i];
    factors[i] = exp_of(highest[i] - subtracted[i]);
    highest[i] = new_highest[i];
    total[i] *= factors[i];
  }
  for (int64_t i = 0; i < visible.padded_queries; ++i) {
    const float factor = factors[i];
    float* row = sums.at(i, 0);
#pragma omp simd
    for (int64_t c = 0; c < width; ++c) row[c] *= factor;
  }
  for (int64_t j = 0; j < visible.padded_keys; ++j) {
    const InnerRange queries = visible.queries_of(j / cell * cell);
    float* row = scores.at(j, 0);
#pragma omp simd
    for (int64_t i = queries.begin; i < queries.end; ++i) {
      row[i] = exp_of(row[i] - subtracted[i]);
      total[i] += row[i];
    }
  }
}

}  // namespace trireme::kernels::cpu
