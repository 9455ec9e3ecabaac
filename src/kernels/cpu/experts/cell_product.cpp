// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/experts/cell_product.h"

namespace trireme::kernels::cpu {
namespace {

// `lanes` floats in a register, and the same at any float in memory.
template <int lanes>
struct Register {
  using Type __attribute__((vector_size(4 * lanes))) = float;
  using InMemory __attribute__((vector_size(4 * lanes), aligned(4), may_alias)) = float;
};

// A row of the cell is `vectors` registers. The body is inlined into functions for different CPUs.
template <int lanes, int vectors>
[[gnu::always_inline]] inline void multiply_cells(const CellProduct& p) {
  using Vector = typename Register<lanes>::Type;
  using InMemory = typename Register<lanes>::InMemory;
  constexpr int rows = cell_rows;
  Vector sums[rows][vectors] = {};
  const float* a = p.a;
  const float* b = p.b;
  for (int64_t k = 0; k < p.depth; ++k, a += rows, b += lanes * vectors) {
    Vector values[vectors];
#pragma GCC unroll 8
    for (int j = 0; j < vectors; ++j) values[j] = *reinterpret_cast<const InMemory*>(b + j * lanes);
#pragma GCC unroll 8
    for (int i = 0; i < rows; ++i) {
#pragma GCC unroll 8
      for (int j = 0; j < vectors; ++j) sums[i][j] += values[j] * a[i];
    }
  }
#pragma GCC unroll 8
  for (int i = 0; i < rows; ++i) {
#pragma GCC unroll 8
    for (int j = 0; j < vectors; ++j) {
      // Not auto*, which would drop the alignment of one float.
      InMemory* d = reinterpret_cast<InMemory*>(p.d + i * p.d_stride + j * lanes);  // NOLINT
      const Vector sum = p.adds ? *d + sums[i][j] : sums[i][j];
      *d = sum;
    }
  }
}

void multiply_4_lanes(const CellProduct& p) { multiply_cells<4, 4>(p); }

#if defined(__x86_64__)
[[gnu::target("avx2,fma")]] void multiply_8_lanes(const CellProduct& p) { multiply_cells<8, 2>(p); }
[[gnu::target("avx512f,fma")]] void multiply_16_lanes(const CellProduct& p) {
  multiply_cells<16, 2>(p);
}
#endif

CellKernel best_kernel() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f")) return {32, multiply_16_lanes};
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
    return {16, multiply_8_lanes};
  }
#endif
  return {16, multiply_4_lanes};
}

}  // namespace

const CellKernel& cell_kernel() {
  static const CellKernel kernel = best_kernel();
  return kernel;
}

}  // namespace trireme::kernels::cpu
