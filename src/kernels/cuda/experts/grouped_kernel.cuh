// SPDX-License-Identifier: Apache-2.0
// The kernel of grouped.cuh: copies operands and assigns roles to warps.
#pragma once

#include "kernels/cuda/experts/grouped.cuh"
#include "kernels/cuda/gemm_fused/gemm_fused_finish.cuh"
#include "kernels/cuda/gemm_fused/gemm_fused_multiply.cuh"

namespace trireme::kernels::cuda::fused {

// Copies one half (of both blocks' columns) of a step of b, to this block or to both.
template <Fusion fusion>
__device__ void copy_half_of_b(const GroupedProduct& p, uint32_t b, uint32_t full, const Tile& tile,
                               int k, int group, int half, bool to_both) {
  constexpr uint16_t both = (1U << blocks_of_cluster) - 1;
  const auto copy = [&](uint32_t to, int column, int row) {
    if (to_both) {
      hopper::copy_tile_to_all(to, &p.b, column, row, group, full, both);
    } else {
      hopper::copy_tile(to, &p.b, column, row, group, full);
    }
  };
  if constexpr (is_backward(fusion)) {
#pragma unroll
    for (int part = 0; part < half_n; part += swizzled_columns) {
      const int column = half * half_n + part;
      copy(b + column * (tile_k * 2), tile.column + column, k);
    }
  } else {
    // For swiglu, one half has rows of gate, the other the same rows of up.
    const int row =
        is_swiglu(fusion) ? tile.column / 2 + half * (p.n / 2) : tile.column + half * half_n;
    copy(b + half * (b_bytes / 2), k, row);
  }
}

// Run by one thread.
template <Fusion fusion>
__device__ void copy_grouped_operands(const GroupedProduct& p, Shared shared,
                                      TilesOfGroups<fusion> tiles, uint32_t rank) {
  Turn turn;
  for (; tiles.has_tile(); tiles.advance()) {
    const Tile tile = tiles.tile();
    const int steps = tiles.steps();
    int first = 0, group = 0;
    bool is_common = true;
    if constexpr (is_weight_grad(fusion)) {
      first = tiles.first();
    } else {
      const auto groups = tiles.groups(tile);
      group = groups.own;
      is_common = groups.is_common;
    }
    for (int step = 0; step < steps; ++step, turn.advance()) {
      const int k = first + step * tile_k;
      const uint32_t full = shared.full(turn.stage);
      const uint32_t a = shared.a(turn.stage), b = shared.b(turn.stage);
      hopper::wait(shared.empty(turn.stage), turn.parity ^ 1);
      hopper::arrive_expecting(full, a_bytes + b_bytes);
      if constexpr (is_weight_grad(fusion)) {
#pragma unroll
        for (int part = 0; part < tile_m; part += swizzled_columns) {
          hopper::copy_tile(a + part * (tile_k * 2), &p.a, tile.row + part, k, full);
        }
      } else {
        hopper::copy_tile(a, &p.a, k, tile.row, full);
      }
      const int half = static_cast<int>(rank);
      copy_half_of_b<fusion>(p, b, full, tile, k, group, half, is_common);
      if (!is_common) copy_half_of_b<fusion>(p, b, full, tile, k, group, 1 - half, false);
    }
  }
}

template <Fusion fusion>
constexpr Registers registers_of() {
  if (is_plain(fusion) || fusion == Fusion::weight_grad) return {232, 40};
  if (fusion == Fusion::weight_grad_bf16) return {200, 104};
  return {184, 136};
}

template <Fusion fusion>
__global__ void __cluster_dims__(blocks_of_cluster) __launch_bounds__(threads, 1)
    grouped_kernel(const __grid_constant__ GroupedProduct p) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL  // GroupedProducts launches it nowhere else
  extern __shared__ uint8_t raw[];
  const uint32_t raw_address = shared_address(raw);
  const Shared shared = {(raw_address + 1023) & ~1023U};
  const uint32_t rank = hopper::cluster_rank();
  const int group = static_cast<int>(threadIdx.x) / group_threads;
  const int warp = static_cast<int>(threadIdx.x) / warp_size;
  init_barriers(shared);
  auto* copy = reinterpret_cast<int32_t*>(raw + (shared.base - raw_address) + starts_begin);
  const GroupList groups = list_groups<fusion>(p, copy);
  __syncthreads();
  hopper::cluster_sync();
  const TilesOfGroups<fusion> tiles(p, groups, rank);
  constexpr Registers registers = registers_of<fusion>();
  constexpr bool finishes = !is_plain(fusion) && fusion != Fusion::weight_grad;
  if (group > 0) {
    hopper::take_registers<registers.multiplying>();
    multiply_tiles<fusion>(p, shared, tiles, group - 1);
  } else {
    hopper::give_registers<registers.others>();
    if (threadIdx.x == 0) {
      hopper::fetch_map(&p.a);
      hopper::fetch_map(&p.b);
      copy_grouped_operands<fusion>(p, shared, tiles, rank);
    } else if (warp > 0) {
      const bool moves = warp <= 2 && threadIdx.x % warp_size == 0;  // for a warpgroup
      if constexpr (finishes) {
        finish_tiles<fusion>(p, shared, tiles, warp - 1);
      } else if constexpr (is_plain(fusion)) {
        if (moves) move_results(p, shared, tiles, warp - 1);
      } else {
        if (moves) GradientMover<GroupedProduct, GradientTiles>(p, shared, warp - 1).run(tiles);
      }
    }
    __syncwarp();
  }
  // A block must not exit while the other one copies to it.
  hopper::cluster_sync();
#endif
}

}  // namespace trireme::kernels::cuda::fused
