// SPDX-License-Identifier: Apache-2.0
// The warps that apply the activation to finished tiles and write the results: see gemm_fused.cuh.
// They have about as much time for a tile as the multiplication takes, and share the multiprocessor
// with it: instructions count.
#pragma once

#include "kernels/cuda/activation.cuh"
#include "kernels/cuda/gemm_fused.cuh"
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

// A chunk of the tile: its row, where it starts in a row in bytes, and whether it is inside the
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
// By a predicate, not a branch: the chunks that a warp works on must stay one piece of code, whose
// instructions fill each other's latencies.
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
__device__ inline uint4 load_shared(uint32_t address) {
  uint4 bits;
  asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
               : "=r"(bits.x), "=r"(bits.y), "=r"(bits.z), "=r"(bits.w)
               : "r"(address)
               : "memory");
  return bits;
}

struct Matrices {
  Beside value, x, d, again;
  uint32_t second;  // bytes from the gate half to the up half of swiglu's
  bool has_again;
};

template <Fusion fusion>
__device__ Matrices matrices_of(const FusedProduct& p, const Tile& tile) {
  constexpr bool is_swiglu = fusion == Fusion::swiglu;
  const int column = is_swiglu ? tile.column / 2 : tile.column;
  return {beside(p.value, p.value_stride, tile.row, column),
          beside(p.x, p.x_stride, tile.row, column),
          beside(p.d, p.d_stride, tile.row, column),
          beside(p.again, p.again_stride, tile.row, column),
          static_cast<uint32_t>(2 * (is_swiglu ? p.n / 2 : p.n)),
          p.again != nullptr};
}
__device__ inline void put_again(const Matrices& to, Chunk c, const uint4& bits) {
  c.is_inside = c.is_inside && to.has_again;
  put(to.again, c, bits);
}

// What was computed of a chunk: one or two chunks of the tile.
struct Values {
  uint4 first, second;
};

// Each in stages over the values of a chunk, so that the latencies of one value's steps are filled
// by the others' (a compiler short of registers does not do this by itself).
__device__ inline void gelu_sigmoids(const float (&x)[W], Sigmoid (&s)[W]) {
  float t[W];
#pragma unroll
  for (int j = 0; j < W; ++j) t[j] = gelu_power(x[j]);
  sigmoids_of_powers(t, s);
}
__device__ inline void silu_sigmoids(const float (&x)[W], Sigmoid (&s)[W]) {
  float t[W];
#pragma unroll
  for (int j = 0; j < W; ++j) t[j] = silu_power(x[j]);
  sigmoids_of_powers(t, s);
}

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

__device__ inline void finish_swiglu(const Matrices& to, const Chunk& c, const Values& of) {
  float gate[W], up[W];
  Sigmoid s[W];
  put(to.value, c, of.first);
  put(to.value, moved(c, to.second), of.second);
  unpack<bf16>(of.first, gate);
  silu_sigmoids(gate, s);
  unpack<bf16>(of.second, up);
#pragma unroll
  for (int j = 0; j < W; ++j) gate[j] = silu(gate[j], s[j]).value * up[j];
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

// A warp takes groups of four rows. Its 32 lanes have a chunk of one row each or, of swiglu, where
// the chunk of up goes with that of gate, of two rows.
constexpr int rows_of_group = 4, groups = tile_m / rows_of_group;

template <Fusion fusion>
__device__ void finish_tiles(const FusedProduct& p, Shared shared, uint32_t rank, int warp) {
  constexpr bool is_swiglu = fusion == Fusion::swiglu;
  constexpr int rows_at_once = is_swiglu ? 2 : 1, lanes_of_row = warp_size / rows_at_once;
  constexpr int turns = rows_of_group / rows_at_once;
  const int lane = static_cast<int>(threadIdx.x) % warp_size;
  const int chunk = lane % lanes_of_row, lane_row = lane / lanes_of_row;
  const int columns = is_swiglu ? p.n / 2 : p.n;
  uint32_t parity = 0;
  for (Tiles tiles(p, rank); tiles.has_tile(); tiles.advance(), parity ^= 1) {
    const Tile tile = tiles.tile();
    const Matrices matrices = matrices_of<fusion>(p, tile);
    const int first_column = is_swiglu ? tile.column / 2 : tile.column;
    const int rows_inside = first_column + chunk * W < columns ? min(tile_m, p.m - tile.row) : 0;
    const auto chunk_of = [&](int group, int turn) -> Chunk {
      const int row = group * rows_of_group + turn * rows_at_once + lane_row;
      return {static_cast<uint32_t>(row), static_cast<uint32_t>(chunk * 16), row < rows_inside};
    };
    Values x[turns] = {};
    const auto fetch = [&](int group, int turn) {
      const Chunk c = chunk_of(group, turn);
      get(matrices.x, c, x[turn].first);
      get(matrices.x, moved(c, matrices.second), x[turn].second);
    };
    if constexpr (is_backward(fusion)) {
#pragma unroll
      for (int turn = 0; turn < turns; ++turn) fetch(warp, turn);
    }
    hopper::wait(shared.made(0), parity);
    bool is_lower = false;
#pragma unroll 1
    for (int group = warp; group < groups; group += finishing_warps) {
      if (!is_lower && group >= groups / 2) {
        hopper::arrive(shared.taken(0));
        hopper::wait(shared.made(1), parity);
        is_lower = true;
      }
      Values of[turns];
#pragma unroll
      for (int turn = 0; turn < turns; ++turn) {
        const int row = static_cast<int>(chunk_of(group, turn).row);
        of[turn].first = load_shared(shared.values(row) + swizzled(row, chunk));
        if constexpr (is_swiglu) {
          of[turn].second = load_shared(shared.values(row) + swizzled(row, chunk + lanes_of_row));
        }
      }
#pragma unroll
      for (int turn = 0; turn < turns; ++turn) {
        const Chunk c = chunk_of(group, turn);
        if constexpr (fusion == Fusion::gelu) finish_gelu(matrices, c, of[turn]);
        if constexpr (fusion == Fusion::swiglu) finish_swiglu(matrices, c, of[turn]);
        if constexpr (fusion == Fusion::swiglu_grad) {
          finish_swiglu_grad(matrices, c, of[turn], x[turn]);
        }
        // What the next group needs, as soon as its place is free; there is no row after the last.
        if constexpr (is_backward(fusion)) fetch(group + finishing_warps, turn);
      }
    }
    hopper::arrive(shared.taken(1));
  }
}

}  // namespace trireme::kernels::cuda::fused
