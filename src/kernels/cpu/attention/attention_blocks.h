// SPDX-License-Identifier: Apache-2.0
// Shared by all kernels of attention in this folder. They work on a block of queries times a block
// of keys, with scores held transposed, [key, query]: statistics of queries are then vectors, and
// only q and dout need to be transposed.
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/shape.h"
#include "kernels/cpu/block_product.h"
#include "kernels/cpu/segment.h"

namespace trireme::kernels::cpu {

constexpr int64_t query_block = 64;
constexpr int64_t key_block = 64;

// Element of `lse` that belongs to head h of token t, in the sequence [seq_begin, seq_end).
inline int64_t lse_index(int64_t heads, int64_t head, int64_t t, int64_t seq_begin,
                         int64_t seq_end) {
  return seq_begin * heads + head * (seq_end - seq_begin) + (t - seq_begin);
}

// `count` rows of one head: columns [head * K, head * K + K) of rows [first, first + count).
struct HeadRows {
  int64_t first = 0;
  int64_t count = 0;
  int64_t head = 0;
  int64_t K = 0;

  int64_t padded_count() const { return base::round_up(count, cell); }
  int64_t padded_K() const { return base::round_up(K, cell); }
  bool fills_cells() const { return count == padded_count() && K == padded_K(); }
};

// The rows copied into `memory` ([padded_count, padded_K]), with zeros around them to fill whole
// cells. fp32 rows are copied too: in a fused projection neighbouring rows lie on different pages,
// and a product that runs down a column of the block would miss the TLB at every step.
inline ConstBlock block_of(const ConstTensor& x, const HeadRows& rows, float* memory) {
  const int64_t width = rows.padded_K();
  if (!rows.fills_cells()) std::fill_n(memory, rows.padded_count() * width, 0.0F);
  for (int64_t r = 0; r < rows.count; ++r) {
    const Segment s = {rows.first + r, rows.head * rows.K, rows.K};
    float* row = memory + r * width;
    const float* values = values_of(x, s, row);
#pragma omp simd
    for (int64_t c = 0; c < rows.K; ++c) row[c] = values[c];
  }
  return {memory, width};
}

// `to` [cols, rows] = factor * from^T, for whole cells.
inline void transpose(const ConstBlock& from, int64_t rows, int64_t cols, float factor,
                      const MutableBlock& to) {
  for (int64_t r = 0; r < rows; r += 4) {
    for (int64_t c = 0; c < cols; c += 4) {
      Lanes in[4];
      for (int64_t i = 0; i < 4; ++i) in[i] = load_lanes(from.at(r + i, c)) * factor;
      const Lanes low01 = __builtin_shufflevector(in[0], in[1], 0, 4, 1, 5);
      const Lanes high01 = __builtin_shufflevector(in[0], in[1], 2, 6, 3, 7);
      const Lanes low23 = __builtin_shufflevector(in[2], in[3], 0, 4, 1, 5);
      const Lanes high23 = __builtin_shufflevector(in[2], in[3], 2, 6, 3, 7);
      store_lanes(to.at(c, r), __builtin_shufflevector(low01, low23, 0, 1, 4, 5));
      store_lanes(to.at(c + 1, r), __builtin_shufflevector(low01, low23, 2, 3, 6, 7));
      store_lanes(to.at(c + 2, r), __builtin_shufflevector(high01, high23, 0, 1, 4, 5));
      store_lanes(to.at(c + 3, r), __builtin_shufflevector(high01, high23, 2, 3, 6, 7));
    }
  }
}

// Which pairs of a block are computed. Query i of the block sees key j if j < keys and, when
// causal, j <= i + offset, where offset is the distance from the first key to the first query.
// Cells that no query sees are skipped.
struct Visible {
  bool causal = true;
  int64_t offset = 0;
  int64_t keys = 0;            // that exist
  int64_t padded_keys = 0;     // whole cells
  int64_t padded_queries = 0;  // whole cells

  // Queries (whole cells) that see any of the keys [j, j + 8). REQUIRES: j is a multiple of 8.
  InnerRange queries_of(int64_t j) const {
    const int64_t first = causal ? std::max<int64_t>(0, j - offset) / cell * cell : 0;
    return {std::min(first, padded_queries), padded_queries};
  }
  // Keys (whole cells) that any of the queries [i, i + 8) sees. REQUIRES: i is a multiple of 8.
  InnerRange keys_of(int64_t i) const {
    if (!causal) return {0, padded_keys};
    const int64_t end = base::round_up(std::max<int64_t>(0, i + cell + offset), cell);
    return {0, std::min(end, padded_keys)};
  }
  // Writes `value` to row[i] of those `computed` queries (queries_of() the cell of j) that do not
  // see key j.
  void hide(int64_t j, const InnerRange& computed, float value, float* row) const {
    int64_t end = computed.begin;
    if (causal) end = std::clamp(j - offset, computed.begin, computed.end);
    if (j >= keys) end = computed.end;
    for (int64_t i = computed.begin; i < end; ++i) row[i] = value;
  }
};

}  // namespace trireme::kernels::cpu
