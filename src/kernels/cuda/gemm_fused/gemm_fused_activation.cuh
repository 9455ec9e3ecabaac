// SPDX-License-Identifier: Apache-2.0
// The activations of a chunk of a finished tile: each function reads what it needs beside the
// values, and writes all results: see gemm_fused_finish.cuh.
#pragma once

#include "kernels/cuda/gemm_fused/gemm_fused_chunks.cuh"

namespace trireme::kernels::cuda::fused {

struct Matrices {
  Beside value, x, d, recomputed;
  uint32_t second;  // bytes from the gate half to the up half of swiglu's
  bool has_again;
};

template <Fusion fusion>
__device__ Matrices matrices_of(const FusedProduct& p, const Tile& tile) {
  constexpr bool is_pair = is_swiglu(fusion);
  const int column = is_pair ? tile.column / 2 : tile.column;
  return {beside(p.value, p.value_stride, tile.row, column),
          beside(p.x, p.x_stride, tile.row, column),
          beside(p.d, p.d_stride, tile.row, column),
          beside(p.recomputed, p.recomputed_stride, tile.row, column),
          static_cast<uint32_t>(2 * (is_pair ? p.n / 2 : p.n)),
          p.recomputed != nullptr};
}
__device__ inline void put_again(const Matrices& to, Chunk c, const uint4& bits) {
  c.is_inside = c.is_inside && to.has_again;
  put(to.recomputed, c, bits);
}

// The results of a chunk: one or two chunks of the tile.
struct Values {
  uint4 first, second;
};

__device__ inline void finish_gelu(const Matrices& to, const Chunk& c, const Values& of) {
  float v[W];
  Sigmoid s[W];
  put(to.value, c, of.first);
  unpack<bf16>(of.first, v);
  gelu_sigmoids(v, s);
#pragma unroll
  for (int j = 0; j < W; ++j) v[j] *= s[j].value;
  put(to.d, c, pack<bf16>(v));
}

__device__ inline void finish_gelu_slope(const Matrices& to, const Chunk& c, const Values& of) {
  float v[W], y[W], slope[W];
  unpack<bf16>(of.first, v);
  gelu_with_grad(v, y, slope);
  put(to.value, c, pack<bf16>(slope));
  put(to.d, c, pack<bf16>(y));
}

template <bool has_weight>
__device__ void finish_swiglu(const Matrices& to, const Chunk& c, const Values& of, float weight) {
  float gate[W], up[W];
  Sigmoid s[W];
  put(to.value, c, of.first);
  put(to.value, moved(c, to.second), of.second);
  unpack<bf16>(of.first, gate);
  silu_sigmoids(gate, s);
  unpack<bf16>(of.second, up);
#pragma unroll
  for (int j = 0; j < W; ++j) {
    gate[j] = silu(gate[j], s[j]).value * up[j];
    if constexpr (has_weight) gate[j] *= weight;
  }
  put(to.d, c, pack<bf16>(gate));
}

__device__ inline void finish_swiglu_grad(const Matrices& to, const Chunk& c, const Values& of,
                                          const Values& at) {
  float v[W], gate[W], up[W], y[W];
  Sigmoid s[W];
  unpack<bf16>(at.first, gate);
  silu_sigmoids(gate, s);
  unpack<bf16>(of.first, v);
  unpack<bf16>(at.second, up);
#pragma unroll
  for (int j = 0; j < W; ++j) {
    const Silu of_gate = silu(gate[j], s[j]);
    y[j] = of_gate.value * up[j];
    gate[j] = v[j] * up[j] * of_gate.derivative;
    up[j] = v[j] * of_gate.value;
  }
  put(to.d, c, pack<bf16>(gate));
  put(to.d, moved(c, to.second), pack<bf16>(up));
  put_again(to, c, pack<bf16>(y));
}

// Times a weight, with fewer instructions: silu' = s + silu - silu s. silu has the bits of silu().
// Returns the sum of value silu(gate) up.
__device__ inline float finish_weighted_swiglu_grad(const Matrices& to, const Chunk& c,
                                                    const Values& of, const Values& at,
                                                    float weight) {
  float v[W], gate[W], up[W], s[W];
  unpack<bf16>(at.first, gate);
#pragma unroll
  for (int j = 0; j < W; ++j) s[j] = power_of_two(silu_power(gate[j]));
#pragma unroll
  for (int j = 0; j < W; ++j) s[j] = reciprocal(1.0F + s[j]);
  unpack<bf16>(of.first, v);
  unpack<bf16>(at.second, up);
  float sum = 0;
#pragma unroll
  for (int j = 0; j < W; ++j) {
    const float silu = gate[j] * s[j], slope = fmaf(-silu, s[j], s[j] + silu), y = silu * up[j];
    sum = fmaf(v[j], y, sum);
    v[j] *= weight;
    gate[j] = v[j] * up[j] * slope;
    up[j] = v[j] * silu;
    s[j] = y * weight;
  }
  put(to.d, c, pack<bf16>(gate));
  put(to.d, moved(c, to.second), pack<bf16>(up));
  put_again(to, c, pack<bf16>(s));
  return sum;
}

// d = value x, which is added, as stored, to the lane's sums of its columns.
__device__ inline void finish_factor(const Matrices& to, const Chunk& c, const Values& of,
                                     const Values& at, float (&sums)[W]) {
  float v[W], x[W];
  unpack<bf16>(of.first, v);
  unpack<bf16>(at.first, x);
#pragma unroll
  for (int j = 0; j < W; ++j) v[j] *= x[j];
  const uint4 bits = pack<bf16>(v);
  put(to.d, c, bits);
  unpack<bf16>(bits, v);
#pragma unroll
  for (int j = 0; j < W; ++j) sums[j] += v[j];
}

}  // namespace trireme::kernels::cuda::fused
