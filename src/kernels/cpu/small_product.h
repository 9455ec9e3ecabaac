// SPDX-License-Identifier: Apache-2.0
// d = alpha op(a) op(b) + beta d with sums in fp64, for matrices so small that time does not
// matter: a product takes microseconds, up to twice the time of BLAS. In return the gradients of
// tiny models, which are compared with other programs, are about twice as close to fp64.
#pragma once

#include <cstdint>

namespace trireme::kernels::cpu {

constexpr bool is_small_product(int64_t m, int64_t n, int64_t k) {
  return m >= 8 && n >= 8 && m * n * k <= (int64_t{1} << 17);
}

struct SmallProduct {
  const float* a;  // as stored, before op
  const float* b;
  float* d;
  int64_t a_stride = 0, b_stride = 0, d_stride = 0;  // elements between rows
  int64_t m = 0, n = 0, k = 0;
  bool trans_a = false, trans_b = false;
  float alpha = 1, beta = 0;  // with beta = 0, d is not read
};
void multiply_small(const SmallProduct&);

}  // namespace trireme::kernels::cpu
