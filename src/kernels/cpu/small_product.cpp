// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/small_product.h"

#include <algorithm>
#include <vector>

namespace trireme::kernels::cpu {
namespace {

constexpr int64_t tile_rows = 4, tile_cols = 8;

// op(x) widened to fp64, with `width` elements per row; columns beyond `cols` are zero.
struct Wide {
  int64_t rows, cols, width;
  bool trans;
};

void widen(const float* x, int64_t stride, const Wide& shape, double* to) {
  for (int64_t r = 0; r < shape.rows; ++r) {
    double* row = to + r * shape.width;
    for (int64_t c = 0; c < shape.cols; ++c) {
      row[c] = static_cast<double>(shape.trans ? x[c * stride + r] : x[r * stride + c]);
    }
    std::fill(row + shape.cols, row + shape.width, 0.0);
  }
}

std::vector<double>& thread_doubles() {
  thread_local std::vector<double> memory;
  return memory;
}

}  // namespace

void multiply_small(const SmallProduct& p) {
  // a as [k, m] and b as [k, n], padded to whole tiles, so that the inner loop reads both in order.
  const int64_t m = (p.m + tile_rows - 1) / tile_rows * tile_rows;
  const int64_t n = (p.n + tile_cols - 1) / tile_cols * tile_cols;
  std::vector<double>& memory = thread_doubles();
  const auto needed = static_cast<size_t>(p.k * (m + n));
  if (memory.size() < needed) memory.resize(needed);
  double* a = memory.data();
  double* b = a + p.k * m;
  widen(p.a, p.a_stride, {p.k, p.m, m, !p.trans_a}, a);
  widen(p.b, p.b_stride, {p.k, p.n, n, p.trans_b}, b);

  for (int64_t i0 = 0; i0 < p.m; i0 += tile_rows) {
    for (int64_t j0 = 0; j0 < p.n; j0 += tile_cols) {
      double sum[tile_rows][tile_cols] = {};
      for (int64_t k = 0; k < p.k; ++k) {
        const double* ak = a + k * m + i0;
        const double* bk = b + k * n + j0;
        for (int64_t i = 0; i < tile_rows; ++i) {
          for (int64_t j = 0; j < tile_cols; ++j) sum[i][j] += ak[i] * bk[j];
        }
      }
      for (int64_t i = 0; i < std::min(tile_rows, p.m - i0); ++i) {
        float* d = p.d + (i0 + i) * p.d_stride + j0;
        for (int64_t j = 0; j < std::min(tile_cols, p.n - j0); ++j) {
          const double old =
              p.beta == 0 ? 0 : static_cast<double>(p.beta) * static_cast<double>(d[j]);
          d[j] = static_cast<float>(static_cast<double>(p.alpha) * sum[i][j] + old);
        }
      }
    }
  }
}

}  // namespace trireme::kernels::cpu
