// SPDX-License-Identifier: Apache-2.0
// The warp that copies operands and the warpgroups that multiply them: see gemm_fused.cuh.
#pragma once

#include <cstring>

#include "kernels/cuda/gemm_fused/gemm_fused_factors.cuh"
#include "kernels/cuda/gemm_fused/gemm_fused_results.cuh"

namespace trireme::kernels::cuda::fused {

// A position in the ring of stages, and the parity of its turn.
struct Turn {
  int stage = 0;
  uint32_t parity = 0;
  __device__ void advance() {
    if (++stage == stages) {
      stage = 0;
      parity ^= 1;
    }
  }
};

// Run by one thread.
template <Fusion fusion>
__device__ void copy_operands(const FusedProduct& p, Shared shared, uint32_t rank) {
  constexpr uint16_t both = (1U << blocks_of_cluster) - 1;
  const int half = static_cast<int>(rank);
  Turn turn;
  for (Tiles tiles(p, rank); tiles.has_tile(); tiles.advance()) {
    const int steps = tiles.steps();
    const Tile tile = tiles.tile();
    for (int step = 0; step < steps; ++step, turn.advance()) {
      const int k = step * tile_k;
      const uint32_t full = shared.full(turn.stage), b = shared.b(turn.stage);
      hopper::wait(shared.empty(turn.stage), turn.parity ^ 1);
      hopper::arrive_expecting(full, a_bytes + b_bytes);
      hopper::copy_tile(shared.a(turn.stage), &p.a, k, tile.row, full);
      if constexpr (is_backward(fusion)) {
#pragma unroll
        for (int part = 0; part < half_n; part += swizzled_columns) {
          const int column = half * half_n + part;
          hopper::copy_tile_to_all(b + column * (tile_k * 2), &p.b, tile.column + column, k, full,
                                   both);
        }
      } else {
        // For swiglu, one block copies rows of gate, the other the same rows of up.
        const int row = fusion == Fusion::swiglu ? tile.column / 2 + half * (p.n / 2)
                                                 : tile.column + half * half_n;
        hopper::copy_tile_to_all(b + half * (b_bytes / 2), &p.b, k, row, full, both);
      }
    }
  }
}

// Stores the values of a warpgroup in rows half_m half, .. of the values in shared memory. Value j
// of a thread: row lane / 4 (+ 8 for the second two of four) of its warp's 16, column 8 (j / 4) + 2
// (lane % 4) + j % 2. `bias_at`: pairs of bf16 in shared memory, one a pair of columns; or 0.
template <bool has_bias>
__device__ void leave_values(Shared shared, int half, const float (&d)[tile_n / 2],
                             uint32_t bias_at) {
  const int thread = static_cast<int>(threadIdx.x) % group_threads;
  const int warp = thread / warp_size, lane = thread % warp_size;
  const int row = half * half_m + 16 * warp + lane % 16;
  // The biases of two chunks, requested one turn ahead.
  const auto pairs_of = [&](int chunk, uint32_t(&pairs)[2]) {
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      asm volatile("ld.shared.b32 %0, [%1];"
                   : "=r"(pairs[j])
                   : "r"(bias_at + (chunk + j) * 16 + (lane % 4) * 4)
                   : "memory");
    }
  };
  uint32_t next[2] = {0, 0};
  if constexpr (has_bias) pairs_of(0, next);
#pragma unroll
  for (int chunk = 0; chunk < tile_n / 8; chunk += 2) {
    const uint32_t pairs[2] = {next[0], next[1]};
    if constexpr (has_bias) {
      if (chunk + 2 < tile_n / 8) pairs_of(chunk + 2, next);
    }
    uint32_t words[4];
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      float low = 0, high = 0;
      if constexpr (has_bias) {
        low = __uint_as_float(pairs[j] << 16);
        high = __uint_as_float(pairs[j] & 0xffff0000U);
      }
      const float* four = d + 4 * (chunk + j);
      const __nv_bfloat162 upper = __floats2bfloat162_rn(four[0] + low, four[1] + high);
      const __nv_bfloat162 lower = __floats2bfloat162_rn(four[2] + low, four[3] + high);
      memcpy(&words[2 * j], &upper, 4);
      memcpy(&words[2 * j + 1], &lower, 4);
    }
    hopper::store_matrices(shared.values(row) + swizzled(row, chunk + lane / 16), words[0],
                           words[1], words[2], words[3]);
  }
}

// Leaves combine(value, other) of the values of a warpgroup and the bf16 numbers in their places.
template <typename Combine>
__device__ void leave_combined(Shared shared, int half, const float (&d)[tile_n / 2],
                               const Combine& combine) {
  const int thread = static_cast<int>(threadIdx.x) % group_threads;
  const int warp = thread / warp_size, lane = thread % warp_size;
  const int row = half * half_m + 16 * warp + lane % 16;
  const auto place = [&](int chunk) {
    return shared.values(row) + swizzled(row, chunk + lane / 16);
  };
  uint32_t next[4];
  hopper::load_matrices(place(0), next);
#pragma unroll
  for (int chunk = 0; chunk < tile_n / 8; chunk += 2) {
    const uint32_t others[4] = {next[0], next[1], next[2], next[3]};
    if (chunk + 2 < tile_n / 8) hopper::load_matrices(place(chunk + 2), next);
    uint32_t words[4];
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const float* pair = d + 4 * (chunk + j / 2) + 2 * (j % 2);
      const __nv_bfloat162 both =
          __floats2bfloat162_rn(combine(pair[0], __uint_as_float(others[j] << 16)),
                                combine(pair[1], __uint_as_float(others[j] & 0xffff0000U)));
      memcpy(&words[j], &both, 4);
    }
    hopper::store_matrices(place(chunk), words[0], words[1], words[2], words[3]);
  }
}

// Run by one warpgroup.
template <Fusion fusion, typename Product, typename AnyTiles>
__device__ void multiply_tiles(const Product& p, Shared shared, AnyTiles tiles, int half) {
  constexpr bool by_columns = is_backward(fusion), a_by_columns = is_weight_grad(fusion);
  constexpr uint64_t a_part = (a_by_columns ? 16 * 128 : 32) >> 4;
  constexpr uint64_t b_part = (by_columns ? 16 * 128 : 32) >> 4;
  constexpr uint32_t a_leading = a_by_columns ? tile_k * 128 : 16, b_leading = tile_k * 128;
  constexpr int steps_of_copy = 2;  // until x has arrived
  constexpr bool has_bias = fusion == Fusion::gelu || fusion == Fusion::gelu_slope;
  constexpr bool has_factors = fusion == Fusion::gelu_grad;
  constexpr bool has_addends = fusion == Fusion::weight_grad_bf16;
  const int thread = static_cast<int>(threadIdx.x) % group_threads;
  const uint32_t bias_at = shared.base + bias_begin + half * row_bytes;
  const auto release = [&](int stage) {
    if (thread < blocks_of_cluster) hopper::arrive_at(shared.empty(stage), thread);
  };
  float d[tile_n / 2];
  Turn turn;
  uint32_t values_parity = 1;
  Factors factors(p, shared, half);
  const Addends addends(shared, half);
  const Gradients gradients(shared, half);
  Results results(shared, half);
  for (; tiles.has_tile(); tiles.advance(), values_parity ^= 1) {
    const int steps = tiles.steps();
    bool is_requested = false;
    uint32_t bias = 0;
    if constexpr (has_bias) {
      const int column = tiles.tile().column + 2 * thread;
      if (p.bias != nullptr && 2 * thread < tile_n && column < p.n) {
        bias = *reinterpret_cast<const uint32_t*>(p.bias + column);
      }
    }
    int last = 0;
    int steps_since = 0;  // x was requested
    for (int step = 0; step < steps; ++step, turn.advance()) {
      hopper::wait(shared.full(turn.stage), turn.parity);
      const uint64_t a =
          hopper::matrix_descriptor(shared.a(turn.stage) + half * (a_bytes / 2), a_leading);
      const uint64_t b = hopper::matrix_descriptor(shared.b(turn.stage), b_leading);
      hopper::products_begin();
#pragma unroll
      for (int part = 0; part < tile_k / 16; ++part) {
        hopper::multiply_64x256x16<a_by_columns, by_columns>(d, a + part * a_part,
                                                             b + part * b_part, step + part > 0);
      }
      hopper::products_commit();
      if (step > 0) {
        hopper::products_wait<1>();
        release(last);
      }
      last = turn.stage;
      if constexpr (has_factors) {
        if (steps_since > 0) {
          if (++steps_since > steps_of_copy) factors.make_share();
        } else if (hopper::is_over(shared.taken(half), values_parity)) {
          factors.begin(tiles.tile(), steps - step - steps_of_copy);
          steps_since = 1;
        }
      }
      if constexpr (has_addends) {
        if (p.adds && !is_requested && hopper::is_over(shared.taken(half), values_parity)) {
          addends.begin(p, tiles.tile());
          is_requested = true;
        }
      }
    }
    if constexpr (has_factors) {
      if (steps_since == 0) {
        hopper::wait(shared.taken(half), values_parity);
        factors.begin(tiles.tile(), 0);
      }
      factors.make_rest();
      __syncwarp();
    }
    hopper::products_wait<0>();
    release(last);
    if constexpr (fusion == Fusion::weight_grad) {
      gradients.put(p.adds, d);
      continue;
    }
    if constexpr (is_plain(fusion)) {
      results.put(d);
      continue;
    }
    if constexpr (has_bias) {
      if (2 * thread < tile_n) {
        asm volatile("st.shared.b32 [%0], %1;" ::"r"(bias_at + 4 * thread), "r"(bias) : "memory");
      }
      hopper::sync_threads(2 + half, group_threads);
    }
    if constexpr (has_factors) {
      leave_combined(shared, half, d, [](float x, float factor) { return x * factor; });
    } else {
      hopper::wait(shared.taken(half), values_parity);
      bool is_left = false;
      if constexpr (has_addends) {
        if (p.adds) {
          if (!is_requested) addends.begin(p, tiles.tile());
          wait_for_copies();
          __syncwarp();
          leave_combined(shared, half, d, [](float x, float addend) { return x + addend; });
          is_left = true;
        }
      }
      if (!is_left) leave_values<has_bias>(shared, half, d, bias_at);
    }
    hopper::arrive(shared.made(half));
  }
}

}  // namespace trireme::kernels::cuda::fused
