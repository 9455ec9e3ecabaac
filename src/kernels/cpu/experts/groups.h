// SPDX-License-Identifier: Apache-2.0
// Groups of rows, each with the matrix of its expert, as lists of tiles for the pool. How groups
// are cut depends on the rows that are really there and on the number of threads, which no result
// depends on.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/shape.h"
#include "kernels/cpu/experts/cell_product.h"
#include "kernels/cpu/experts/tile_product.h"
#include "kernels/cpu/segment.h"

namespace trireme::kernels::cpu {

constexpr int64_t max_group_tile_rows = 240;
static_assert(max_group_tile_rows % cell_rows == 0);
constexpr int64_t max_group_tile_cols = 256;
static_assert(max_group_tile_cols <= max_segment);

inline int64_t groups_of(const ConstTensor& starts) { return starts.rows() - 1; }

// The matrix of an expert: [N, D] of a tensor [G, N, D].
inline MatrixView matrix_of(const ConstTensor& weight, int64_t group, bool trans) {
  return {weight.data + group * weight.row_stride * base::size_of(weight.dtype), weight.dtype,
          weight.shape[2], trans};
}
// Rows of activations from `first` on.
inline MatrixView rows_of(const ConstTensor& x, int64_t first, bool trans) {
  return {x.data + first * x.row_stride * base::size_of(x.dtype), x.dtype, x.row_stride, trans};
}

// Neighbouring rows of one group.
struct GroupRows {
  int64_t group = 0;
  int64_t first = 0, rows = 0;
};

// Calls body(GroupRows, first column, columns) for tiles of at most max_group_tile_cols columns
// that cover `cols` columns of all groups. Tiles of the same matrix follow one another.
template <typename Body>
void for_each_group_tile(base::ThreadPool& pool, const ConstTensor& starts, int64_t cols,
                         int64_t tile_cols, const Body& body) {
  const int64_t groups = groups_of(starts);
  const int64_t total = index_at(starts, groups) - index_at(starts, 0);
  const int64_t col_parts = divide_up(cols, tile_cols);
  if (total <= 0 || col_parts == 0) return;
  // Several tasks a thread end together.
  const int64_t rows_wanted = divide_up(total * col_parts, int64_t{4} * pool.threads());
  const int64_t tile_rows =
      std::clamp(base::round_up(rows_wanted, cell_rows), int64_t{60}, max_group_tile_rows);
  thread_local std::vector<GroupRows> list;
  list.clear();
  for (int64_t g = 0; g < groups; ++g) {
    const int64_t begin = index_at(starts, g), rows = index_at(starts, g + 1) - begin;
    const int64_t parts = divide_up(rows, tile_rows);
    const int64_t part_rows = parts > 0 ? base::round_up(divide_up(rows, parts), cell_rows) : 0;
    for (int64_t done = 0; done < rows; done += part_rows) {
      list.push_back({g, begin + done, std::min(part_rows, rows - done)});
    }
  }
  const std::vector<GroupRows>& tiles = list;  // of this thread, for the others
  pool.for_each(static_cast<int64_t>(tiles.size()) * col_parts, [&](int64_t task) {
    const int64_t first = task % col_parts * tile_cols;
    body(tiles[static_cast<size_t>(task / col_parts)], first, std::min(tile_cols, cols - first));
  });
}

}  // namespace trireme::kernels::cpu
