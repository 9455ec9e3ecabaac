// SPDX-License-Identifier: Apache-2.0
// Chunks of 16 bytes of the matrices beside a tile, and the activations of their values: see
// gemm_fused.cuh.
#pragma once

#include "kernels/cuda/activation.cuh"
#include "kernels/cuda/gemm_fused/gemm_fused.cuh"
#include "kernels/cuda/shared_memory.cuh"
#include "kernels/cuda/values.cuh"

namespace trireme::kernels::cuda::fused {

constexpr int W = 8;  // values in a chunk of 16 bytes

// A matrix beside the tile that is read or written: its element at the tile's first row and column.
struct Beside {
  uint64_t first;
  uint32_t stride;  // bytes
};
template <typename T>
__device__ Beside beside(T* matrix, int64_t stride, int64_t row, int64_t column) {
  return {reinterpret_cast<uint64_t>(matrix) + 2 * (row * stride + column),
          static_cast<uint32_t>(2 * stride)};
}

// A chunk of the tile: its row, its offset in the row in bytes, and whether it is inside the
// matrices.
struct Chunk {
  uint32_t row, offset;
  bool is_inside;
};
__device__ inline Chunk moved(const Chunk& c, uint32_t bytes) {
  return {c.row, c.offset + bytes, c.is_inside};
}
__device__ inline uint64_t address_of(const Beside& m, const Chunk& c) {
  return m.first + (static_cast<uint64_t>(c.row) * m.stride + c.offset);
}
// By a predicate, not a branch: the chunks of a warp must stay one basic block, whose instructions
// hide each other's latencies.
__device__ inline void put(const Beside& to, const Chunk& c, const uint4& bits) {
  asm volatile(
      "{\n"
      ".reg .pred inside;\n"
      "setp.ne.s32 inside, %5, 0;\n"
      "@inside st.global.v4.b32 [%0], {%1, %2, %3, %4};\n"
      "}" ::"l"(address_of(to, c)),
      "r"(bits.x), "r"(bits.y), "r"(bits.z), "r"(bits.w), "r"(static_cast<int>(c.is_inside))
      : "memory");
}
__device__ inline void get(const Beside& from, const Chunk& c, uint4& bits) {
  asm volatile(
      "{\n"
      ".reg .pred inside;\n"
      "setp.ne.s32 inside, %5, 0;\n"
      "@inside ld.global.v4.b32 {%0, %1, %2, %3}, [%4];\n"
      "}"
      : "+r"(bits.x), "+r"(bits.y), "+r"(bits.z), "+r"(bits.w)
      : "l"(address_of(from, c)), "r"(static_cast<int>(c.is_inside))
      : "memory");
}

// Each works in stages over the values of a chunk, so that the steps of different values hide each
// other's latencies (a compiler short of registers does not do this by itself).
__device__ inline void gelu_sigmoids(const float (&x)[W], Sigmoid (&s)[W]) {
  float t[W];
#pragma unroll
  for (int j = 0; j < W; ++j) t[j] = gelu_power(x[j]);
  sigmoids_of_powers(t, s);
}
// y = gelu(x) with the bits of gelu(), and its derivative.
__device__ inline void gelu_with_grad(const float (&x)[W], float (&y)[W], float (&derivative)[W]) {
  // Beyond 16 the sigmoid is 0 or 1; nothing overflows within.
  float near[W], slope[W], s[W];
#pragma unroll
  for (int j = 0; j < W; ++j) near[j] = between(-16.0F, x[j], 16.0F);
#pragma unroll
  for (int j = 0; j < W; ++j) s[j] = power_of_two(gelu_power(near[j]));
#pragma unroll
  for (int j = 0; j < W; ++j) slope[j] = near[j] * gelu_power_slope(near[j]);
#pragma unroll
  for (int j = 0; j < W; ++j) s[j] = reciprocal(1.0F + s[j]);
#pragma unroll
  for (int j = 0; j < W; ++j) derivative[j] = fmaf(slope[j], fmaf(-s[j], s[j], s[j]), s[j]);
#pragma unroll
  for (int j = 0; j < W; ++j) y[j] = x[j] * s[j];
}
__device__ inline void silu_sigmoids(const float (&x)[W], Sigmoid (&s)[W]) {
  float t[W];
#pragma unroll
  for (int j = 0; j < W; ++j) t[j] = silu_power(x[j]);
  sigmoids_of_powers(t, s);
}

}  // namespace trireme::kernels::cuda::fused
