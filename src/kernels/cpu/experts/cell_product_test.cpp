// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/experts/cell_product.h"

#include <gtest/gtest.h>

#include <vector>

#include "base/rng.h"

namespace trireme::kernels::cpu::cell_product_test {
namespace {

// Operands and results begin at any float, which matters to vector instructions of some CPUs.
TEST(CellProductTest, sums_at_any_float_in_memory) {
  const CellKernel& kernel = cell_kernel();
  const int64_t cols = kernel.cols, depth = 77;
  ASSERT_LE(cols, max_cell_cols);
  const base::RngKey key = base::rng_key(1, "cells");
  for (const bool adds : {false, true}) {
    for (int64_t offset = 0; offset < 4; ++offset) {
      std::vector<float> a(static_cast<size_t>(offset + depth * cell_rows));
      std::vector<float> b(static_cast<size_t>(offset + depth * cols));
      const int64_t stride = cols + 3;
      std::vector<float> d(static_cast<size_t>(offset + cell_rows * stride), 2);
      for (size_t i = 0; i < a.size(); ++i) a[i] = base::rng_normal(key, i, 1);
      for (size_t i = 0; i < b.size(); ++i) b[i] = base::rng_normal(key, 10'000 + i, 1);
      kernel.multiply({.a = a.data() + offset,
                       .b = b.data() + offset,
                       .depth = depth,
                       .d = d.data() + offset,
                       .d_stride = stride,
                       .adds = adds});
      for (int64_t i = 0; i < cell_rows; ++i) {
        for (int64_t j = 0; j < stride; ++j) {
          double sum = adds || j >= cols ? 2 : 0;
          for (int64_t k = 0; j < cols && k < depth; ++k) {
            sum += static_cast<double>(a[static_cast<size_t>(offset + k * cell_rows + i)]) *
                   static_cast<double>(b[static_cast<size_t>(offset + k * cols + j)]);
          }
          // 77 fp32 additions of terms of size 1.
          EXPECT_NEAR(static_cast<double>(d[static_cast<size_t>(offset + i * stride + j)]), sum,
                      2e-5);
        }
      }
    }
  }
}

}  // namespace
}  // namespace trireme::kernels::cpu::cell_product_test
