// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/experts/tile_product.h"

#include <algorithm>

#include "base/shape.h"
#include "kernels/cpu/quantize/codes.h"
#include "kernels/cpu/experts/cell_product.h"
#include "kernels/cpu/segment.h"

namespace trireme::kernels::cpu {
namespace {

struct PanelsOfA;  // tags of thread_floats()
struct PanelsOfB;
struct TileSums;

// Rows of op(a), or columns of op(b): `lines` of them from `first` on, inner indices [k0, k0 +
// depth).
struct Lines {
  int64_t first = 0, lines = 0;
  int64_t k0 = 0, depth = 0;
};

// to[k, i] = element k of line i, for `width` lines; lines that do not exist are zero.
template <int64_t width, typename T>
void pack_panel(const T* data, int64_t stride, bool lines_are_rows, const Lines& l, float* to) {
  if (l.lines < width) std::fill_n(to, width * l.depth, 0.0F);
  if (!lines_are_rows) {
    const T* from = data + l.k0 * stride + l.first;
    for (int64_t k = 0; k < l.depth; ++k, from += stride, to += width) {
      if (l.lines == width) {
        for (int64_t i = 0; i < width; ++i) to[i] = static_cast<float>(from[i]);
      } else {
        for (int64_t i = 0; i < l.lines; ++i) to[i] = static_cast<float>(from[i]);
      }
    }
    return;
  }
  const T* from = data + l.first * stride + l.k0;
  if (l.lines == width) {
    for (int64_t k = 0; k < l.depth; ++k, to += width) {
      for (int64_t i = 0; i < width; ++i) to[i] = static_cast<float>(from[i * stride + k]);
    }
    return;
  }
  for (int64_t i = 0; i < l.lines; ++i, from += stride) {
    for (int64_t k = 0; k < l.depth; ++k) to[k * width + i] = static_cast<float>(from[k]);
  }
}

// The same for codes, whose lines are rows: to[k, i] = code * scale.
void pack_codes(const MatrixView& m, const Lines& l, int64_t width, float* to) {
  if (l.lines < width) std::fill_n(to, width * l.depth, 0.0F);
  for (int64_t i = 0; i < l.lines; ++i) {
    const int64_t row = l.first + i;
    const auto* from = reinterpret_cast<const uint8_t*>(m.data) + row * m.stride;
    const float* scales = m.scale.data + row / m.scale.rows_together * m.scale.row_stride;
    for (int64_t k = l.k0; k < l.k0 + l.depth;) {
      const int64_t block = k / spec::scale_block;
      const int64_t count = std::min(l.k0 + l.depth, (block + 1) * spec::scale_block) - k;
      const float scale = scales[block * m.scale.block_stride];
      float values[spec::scale_block];
      if (m.dtype == base::DType::f8e4m3) {
        decode<base::E4m3>(from + k, count, scale, values);
      } else {
        decode<base::E5m2>(from + k, count, scale, values);
      }
      for (int64_t j = 0; j < count; ++j) to[(k - l.k0 + j) * width + i] = values[j];
      k += count;
    }
  }
}

// Panels of `width` lines, one after the other.
template <int64_t width>
void pack(const MatrixView& m, bool lines_are_rows, const Lines& all, float* to) {
  for (int64_t done = 0; done < all.lines; done += width, to += width * all.depth) {
    const Lines panel = {all.first + done, std::min(width, all.lines - done), all.k0, all.depth};
    if (base::is_float8(m.dtype)) {
      TRIREME_CHECK(lines_are_rows && m.scale.data != nullptr,
                    "codes of a product must run along its inner index and have scales");
      pack_codes(m, panel, width, to);
    } else if (m.dtype == base::DType::f32) {
      pack_panel<width>(reinterpret_cast<const float*>(m.data), m.stride, lines_are_rows, panel,
                        to);
    } else {
      with_half_type(m.dtype, [&]<typename T>(T*) {
        pack_panel<width>(reinterpret_cast<const T*>(m.data), m.stride, lines_are_rows, panel, to);
      });
    }
  }
}

}  // namespace

TileValues multiply_tile(const MatrixProduct& product, const Tile& tile) {
  const CellKernel& kernel = cell_kernel();
  const int64_t rows = base::round_up(tile.rows, cell_rows);
  const int64_t part_cols = base::round_up(tile.cols, kernel.cols), cols = tile.parts * part_cols;
  const int64_t max_depth = std::min(tile_depth, product.depth);
  float* a = thread_floats<PanelsOfA>(rows * max_depth);
  float* b = thread_floats<PanelsOfB>(cols * max_depth);
  float* sums = thread_floats<TileSums>(rows * cols);
  if (product.depth == 0) std::fill_n(sums, rows * cols, 0.0F);
  for (int64_t k0 = 0; k0 < product.depth; k0 += tile_depth) {
    const int64_t depth = std::min(tile_depth, product.depth - k0);
    pack<cell_rows>(product.a, !product.a.trans, {tile.row, tile.rows, k0, depth}, a);
    for (int64_t part = 0; part < tile.parts; ++part) {
      const Lines lines = {tile.col + part * tile.part_stride, tile.cols, k0, depth};
      float* to = b + part * part_cols * depth;
      kernel.cols == max_cell_cols ? pack<max_cell_cols>(product.b, product.b.trans, lines, to)
                                   : pack<16>(product.b, product.b.trans, lines, to);
    }
    // A panel of b stays in the first cache while those of a pass by.
    for (int64_t c = 0; c < cols; c += kernel.cols) {
      for (int64_t r = 0; r < rows; r += cell_rows) {
        kernel.multiply({.a = a + r * depth,
                         .b = b + c * depth,
                         .depth = depth,
                         .d = sums + r * cols + c,
                         .d_stride = cols,
                         .adds = k0 > 0});
      }
    }
  }
  return {sums, cols, part_cols};
}

}  // namespace trireme::kernels::cpu
