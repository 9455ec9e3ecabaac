// SPDX-License-Identifier: Apache-2.0
// The inner loop of products of experts: cells of sums that stay in registers, from packed panels
// of both operands. Unlike a BLAS, whose kernels depend on the sizes of a product, it sums every
// element in the order of the inner index, so that the bits of a row depend on nothing but the row
// and the matrix. The vector instructions are those of the CPU that the program runs on.
#pragma once

#include <cstdint>

namespace trireme::kernels::cpu {

constexpr int64_t cell_rows = 5;
constexpr int64_t max_cell_cols = 32;

// sum[i, j] = sum over k of a[k cell_rows + i] b[k cols + j], k ascending from 0.  d = sum, or d +=
// sum.
struct CellProduct {
  const float* a;  // [depth, cell_rows]
  const float* b;  // [depth, cols]
  int64_t depth = 0;
  float* d;  // [cell_rows, cols]
  int64_t d_stride = 0;
  bool adds = false;
};

struct CellKernel {
  int64_t cols = 0;  // of a cell: 16 or 32
  void (*multiply)(const CellProduct&) = nullptr;
};
// The kernel of this CPU.
const CellKernel& cell_kernel();

}  // namespace trireme::kernels::cpu
