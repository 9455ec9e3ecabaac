// SPDX-License-Identifier: Apache-2.0
// Attention where each row has a range of keys: which rows are computed together, and which pairs
// of a block they see.
//
// Rows are computed together if they follow one another and their keys begin at the same one (rows
// of one document do). Blocks of keys start there, as attention_forward starts them at the begin of
// a sequence, so the bits of a row do not depend on the other rows, nor on which rank computes it.
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/check.h"
#include "kernels/cpu/attention/attention_blocks.h"

namespace trireme::kernels::cpu {

// Rows [first, first + count) that see keys from `begin` on, each to its own end.
struct RangeRun {
  int64_t first = 0, count = 0;
  int64_t begin = 0, end = 0;  // end: of the row that sees most; begin >= end: all have no keys
};

// The runs of a tile, which is at most query_block rows.
struct RangeRuns {
  RangeRun runs[query_block];
  int64_t count = 0;

  // Rows [first, first + rows) of the tensors; `keys` exist.
  RangeRuns(const ConstTensor& key_begin, const ConstTensor& key_end, int64_t first, int64_t rows,
            int64_t keys) {
    for (int64_t t = first; t < first + rows; ++t) {
      const int64_t begin = index_at(key_begin, t), end = index_at(key_end, t);
      TRIREME_CHECK(begin >= 0 && end <= keys, "row {} sees keys [{}, {}) of {}", t, begin, end,
                    keys);
      const bool has_keys = begin < end;
      const bool continues = count > 0 && (!has_keys || runs[count - 1].begin == begin ||
                                           runs[count - 1].end == 0);  // no row has keys yet
      if (!continues) runs[count++] = {t, 0, 0, 0};
      RangeRun& run = runs[count - 1];
      ++run.count;
      if (!has_keys) continue;
      run.begin = begin;
      run.end = std::max(run.end, end);
    }
  }

  // All keys that any row sees lie in this range.
  InnerRange keys() const {
    InnerRange hull = {0, 0};
    for (int64_t r = 0; r < count; ++r) {
      if (runs[r].end == 0) continue;
      hull.begin = hull.end == 0 ? runs[r].begin : std::min(hull.begin, runs[r].begin);
      hull.end = std::max(hull.end, runs[r].end);
    }
    return hull;
  }
};

// Which pairs of a block are computed, where query i of the block sees the keys j < ends[i]. Cells
// that no query sees are skipped. The interface is that of Visible.
struct VisibleRanges {
  static constexpr int64_t cells = query_block / cell;

  int64_t padded_keys = 0;          // whole cells
  int64_t padded_queries = 0;       // whole cells
  int32_t ends[query_block] = {};   // of queries that only fill the last cell: as the last one's
  int64_t cell_ends[cells] = {};    // keys (whole cells) that any query of a cell sees
  InnerRange queries[cells] = {};   // of a cell of keys
  int64_t seen_by_all[cells] = {};  // of a cell of keys: those below are seen by all its queries

  // For the rows of a run and the keys [first, first + count).
  VisibleRanges(const RangeRun& run, const ConstTensor& key_begin, const ConstTensor& key_end,
                int64_t first, int64_t count)
      : padded_keys(base::round_up(count, cell)), padded_queries(base::round_up(run.count, cell)) {
    int64_t lowest[cells];
    for (int64_t c = 0; c < padded_queries / cell; ++c) {
      lowest[c] = count;
      for (int64_t i = c * cell; i < (c + 1) * cell; ++i) {
        const int64_t row = run.first + std::min(i, run.count - 1);
        const bool has_keys = index_at(key_begin, row) < index_at(key_end, row);
        const int64_t end =
            has_keys ? std::clamp<int64_t>(index_at(key_end, row) - first, 0, count) : 0;
        ends[i] = static_cast<int32_t>(end);
        cell_ends[c] = std::max(cell_ends[c], base::round_up(end, cell));
        lowest[c] = std::min(lowest[c], end);
      }
    }
    for (int64_t c = 0; c < padded_queries / cell; ++c) {
      for (int64_t j = 0; j < cell_ends[c]; j += cell) {
        InnerRange& range = queries[j / cell];
        if (range.end == 0) range.begin = c * cell;
        range.end = (c + 1) * cell;
      }
    }
    for (int64_t j = 0; j < padded_keys; j += cell) {
      const InnerRange& range = queries[j / cell];
      int64_t& seen = seen_by_all[j / cell];
      seen = count;
      for (int64_t i = range.begin; i < range.end; i += cell) {
        seen = std::min(seen, lowest[i / cell]);
      }
    }
  }

  InnerRange queries_of(int64_t j) const { return queries[j / cell]; }
  InnerRange keys_of(int64_t i) const { return {0, cell_ends[i / cell]}; }
  void hide(int64_t j, const InnerRange& computed, float value, float* row) const {
    if (j < seen_by_all[j / cell]) return;
    const auto key = static_cast<int32_t>(j);
#pragma omp simd
    for (int64_t i = computed.begin; i < computed.end; ++i) {
      row[i] = key < ends[i] ? row[i] : value;
    }
  }
};

}  // namespace trireme::kernels::cpu
