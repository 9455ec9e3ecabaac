// SPDX-License-Identifier: Apache-2.0
// Groups of rows, each with the matrix of its expert, as lists of tiles for the pool. How groups
// are cut depends on the rows that are really there and on the number of threads, which no result
// depends on.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/check.h"
#include "base/shape.h"
#include "kernels/args.h"
#include "kernels/cpu/experts/cell_product.h"
#include "kernels/cpu/experts/tile_product.h"
#include "kernels/cpu/segment.h"

namespace trireme::kernels::cpu {

constexpr int64_t max_group_tile_rows = 240;
static_assert(max_group_tile_rows % cell_rows == 0);
constexpr int64_t max_group_tile_cols = 256;
static_assert(max_group_tile_cols <= max_segment);

inline int64_t groups_of(const ConstTensor& starts) { return starts.rows() - 1; }

// The matrix of an expert: [N, D] of a tensor [G, N, D]. In 8 bits it is always used transposed:
// codes run along the inner index.
inline MatrixView matrix_of(const ConstTensor& weight, const GroupedScales& scales, int64_t group,
                            bool trans) {
  MatrixView view = {weight.data + group * weight.row_stride * base::size_of(weight.dtype),
                     weight.dtype,
                     weight.shape[2],
                     trans || scales.b,
                     {}};
  if (!scales.b) return view;
  const base::Shape one = spec::scale_spec(scales.shape_b, weight.shape[1], weight.shape[2]).shape;
  view.scale.data = floats_at(scales.b, group * one.elements());
  if (scales.shape_b == ScaleShape::block_128) {
    view.scale = {view.scale.data, one[1], 1, spec::scale_block};
  }
  return view;
}
// Rows of activations from `first` on.
inline MatrixView rows_of(const ConstTensor& x, int64_t first, bool trans) {
  return {x.data + first * x.row_stride * base::size_of(x.dtype), x.dtype, x.row_stride, trans, {}};
}
inline ScaleView scales_of(const ConstTensor& scale, ScaleShape shape) {
  if (!scale) return {};
  if (shape == ScaleShape::tensor) return {floats_at(scale, 0), 0, 0, 1};
  return {floats_at(scale, 0), 1, scale.row_stride, 1};
}
inline MatrixView rows_of(const ConstTensor& x, const GroupedScales& scales, int64_t first) {
  MatrixView view = rows_of(x, first, false);
  view.scale = scales_of(scales.a, scales.shape_a);
  view.scale.data += first * view.scale.row_stride;
  return view;
}
// Columns of transposed codes [lines, R] from `first` on: the rows of a group.
inline MatrixView columns_of(const ConstTensor& codes, const ConstTensor& scale, ScaleShape shape,
                             int64_t first, bool trans) {
  const ScaleView scales = scales_of(scale, shape);
  TRIREME_CHECK(scales.block_stride == 0 || first % spec::scale_block == 0,
                "a group begins at row {}, inside a block of {}", first, spec::scale_block);
  return {codes.data + first,
          codes.dtype,
          codes.row_stride,
          trans,
          {scales.data + first / spec::scale_block * scales.block_stride, scales.row_stride,
           scales.block_stride, scales.rows_together}};
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
