// SPDX-License-Identifier: Apache-2.0
// Products of parts of matrices: a tile of d = op(a) op(b) in thread-local fp32 memory, for the
// epilogue that stores it. An element is the sum of blocks of `tile_depth` terms, each summed in
// order (cell_product.h): its bits do not depend on the tile.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/dtype.h"

namespace trireme::kernels::cpu {

constexpr int64_t tile_depth = 256;

// Scales of a matrix in 8 bits whose rows run along the inner index k: that of element k of row r
// is data[r / rows_together * row_stride + k / 128 * block_stride].
struct ScaleView {
  const float* data = nullptr;
  int64_t row_stride = 0, block_stride = 0;
  int64_t rows_together = 1;
};

// A matrix as stored, before op: f32, bf16, f16, or 8-bit codes with scales. Rows are `stride`
// elements apart.
struct MatrixView {
  const std::byte* data = nullptr;
  base::DType dtype = base::DType::f32;
  int64_t stride = 0;
  bool trans = false;
  ScaleView scale = {};
};

struct MatrixProduct {
  MatrixView a, b;
  int64_t depth = 0;  // the inner size
};

// Rows [row, row + rows) and, for each part p, columns [col + p part_stride, ... + cols) of d.
struct Tile {
  int64_t row = 0, rows = 0;
  int64_t col = 0, cols = 0;
  int64_t parts = 1, part_stride = 0;
};

// Results of multiply_tile(). A later call on this thread overwrites them.
struct TileValues {
  float* data = nullptr;
  int64_t row_stride = 0, part_stride = 0;

  float* at(int64_t row, int64_t part = 0) const {
    return data + row * row_stride + part * part_stride;
  }
};
TileValues multiply_tile(const MatrixProduct&, const Tile&);

}  // namespace trireme::kernels::cpu
