// SPDX-License-Identifier: Apache-2.0
// The kernel of grouped_codes.cuh: multiplies, and assigns roles to warps.
#pragma once

#include <type_traits>

#include "kernels/cuda/experts/grouped_codes.cuh"
#include "kernels/cuda/gemm_fused/gemm_fused_finish.cuh"

namespace trireme::kernels::cuda::fused {

// Columns whose products are in the tensor core at a time, and the instructions of 32 along k after
// which their sums are added in fp32.
template <Fusion fusion>
constexpr int part_columns = fusion == Fusion::weight_grad_bf16 ? 64 : 128;

// Run by one warpgroup.
template <Fusion fusion, Sums sums, hopper::CodeFormat format, int promoted>
__device__ void multiply_codes(const CodesProduct& p, Shared shared, TilesOfGroups<fusion> tiles,
                               int half) {
  constexpr int instructions = code_steps / 32;
  constexpr uint64_t k_part = 32 >> 4;
  constexpr int columns = part_columns<fusion>, parts = tile_n / columns;
  constexpr uint64_t column_part = (columns * 128) >> 4;
  constexpr bool has_addends = fusion == Fusion::weight_grad_bf16;
  constexpr bool is_pipelined = sums == Sums::rows && promoted == 1;
  const int thread = static_cast<int>(threadIdx.x) % group_threads;
  const auto release = [&](int stage) {
    if (thread < blocks_of_cluster) hopper::arrive_at(shared.empty(stage), thread);
  };
  float d[tile_n / 2];
  Turn turn;
  uint32_t values_parity = 1;
  int last = -1;  // the stage that is not released yet
  const Addends addends(shared, half);
  const Gradients gradients(shared, half);
  Results results(shared, half);
  for (; tiles.has_tile(); tiles.advance(), values_parity ^= 1) {
    const int steps = steps_of_codes(tiles);
    CodeScales<fusion, sums> scales(p, tiles, half);
    bool is_requested = false;
    if constexpr (sums != Sums::fast) {
#pragma unroll
      for (float& value : d) value = 0;
    }
    for (int step = 0; step < steps; ++step, turn.advance()) {
      scales.fetch(step);
      hopper::wait(shared.full(turn.stage), turn.parity);
      const uint64_t a = hopper::matrix_descriptor(shared.a(turn.stage) + half * (a_bytes / 2), 16);
      const uint64_t b = hopper::matrix_descriptor(shared.b(turn.stage), 16);
      if constexpr (sums == Sums::fast) {
        hopper::products_begin();
#pragma unroll
        for (int i = 0; i < instructions; ++i) {
          hopper::multiply_codes<format>(d, a + i * k_part, b + i * k_part, step + i > 0);
        }
        hopper::products_commit();
        if (step > 0) {
          hopper::products_wait<1>();
          release(last);
        }
        last = turn.stage;
      } else if constexpr (is_pipelined) {
        PipelinedStep<format>(a, b).run(
            scales, scales_of_b(shared, turn.stage),
            [&] {
              if (last >= 0) release(last);
            },
            d);
        last = turn.stage;
      } else {
        float part[columns / 2];
        const auto add_part = [&]<int number>(std::integral_constant<int, number>) {
#pragma unroll
          for (int first = 0; first < instructions; first += promoted) {
            hopper::products_begin();
#pragma unroll
            for (int i = first; i < first + promoted; ++i) {
              hopper::multiply_codes<format>(part, a + i * k_part,
                                             b + number * column_part + i * k_part, i > first);
            }
            hopper::products_commit();
            hopper::products_wait<0>();
            if constexpr (sums == Sums::rows) {
              // All warps have begun this step, and have read the scales of the one before.
              if (number == 0 && first == 0 && last >= 0) release(last);
            } else {
              if (number == parts - 1 && first + promoted == instructions) release(turn.stage);
            }
            scales.template add<number * columns, columns>(part, scales_of_b(shared, turn.stage),
                                                           d);
          }
        };
        add_part(std::integral_constant<int, 0>{});
        add_part(std::integral_constant<int, 1>{});
        if constexpr (parts == 4) {
          add_part(std::integral_constant<int, 2>{});
          add_part(std::integral_constant<int, 3>{});
        }
        last = turn.stage;
      }
      if constexpr (has_addends) {
        if (p.adds && !is_requested && hopper::is_over(shared.taken(half), values_parity)) {
          addends.begin(p, tiles.tile());
          is_requested = true;
        }
      }
    }
    if constexpr (sums == Sums::fast) {
      hopper::products_wait<0>();
      release(last);
    }
    scales.finish(d);
    if constexpr (fusion == Fusion::weight_grad) {
      gradients.put(p.adds, d);
    } else if constexpr (is_plain(fusion)) {
      results.put(d);
    } else {
      hopper::wait(shared.taken(half), values_parity);
      if (p.adds) {
        if (!is_requested) addends.begin(p, tiles.tile());
        wait_for_copies();
        __syncwarp();
        leave_combined(shared, half, d, [](float x, float addend) { return x + addend; });
      } else {
        leave_values<false>(shared, half, d, 0);
      }
      hopper::arrive(shared.made(half));
    }
  }
}

template <Fusion fusion, Sums sums, int promoted>
constexpr Registers registers_of_codes() {
  if (fusion == Fusion::weight_grad_bf16) return {208, 88};
  if (sums == Sums::rows && promoted == 1) return {240, 24};
  return {232, 40};
}

template <Fusion fusion, Sums sums, hopper::CodeFormat format, int promoted>
__global__ void __cluster_dims__(blocks_of_cluster) __launch_bounds__(threads, 1)
    grouped_codes_kernel(const __grid_constant__ CodesProduct p) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL  // GroupedCodes launches it nowhere else
  extern __shared__ uint8_t raw[];
  const uint32_t raw_address = shared_address(raw);
  const Shared shared = {(raw_address + 1023) & ~1023U};
  const uint32_t rank = hopper::cluster_rank();
  const int group = static_cast<int>(threadIdx.x) / group_threads;
  const int warp = static_cast<int>(threadIdx.x) / warp_size;
  init_barriers(shared);
  auto* copy = reinterpret_cast<int32_t*>(raw + (shared.base - raw_address) + starts_begin);
  const GroupList groups = list_groups<fusion>(p, copy, max_shared_groups_of_codes);
  __syncthreads();
  hopper::cluster_sync();
  const TilesOfGroups<fusion> tiles(p, groups, rank);
  constexpr Registers registers = registers_of_codes<fusion, sums, promoted>();
  if (group > 0) {
    hopper::take_registers<registers.multiplying>();
    multiply_codes<fusion, sums, format, promoted>(p, shared, tiles, group - 1);
  } else {
    hopper::give_registers<registers.others>();
    if (threadIdx.x == 0) {
      hopper::fetch_map(&p.a);
      hopper::fetch_map(&p.b);
      copy_codes<fusion, sums>(p, shared, tiles, rank);
    } else if (warp > 0) {
      const bool moves = warp <= 2 && threadIdx.x % warp_size == 0;  // for a warpgroup
      if constexpr (fusion == Fusion::weight_grad_bf16) {
        finish_tiles<fusion>(p, shared, tiles, warp - 1);
      } else if constexpr (is_plain(fusion)) {
        if (moves) move_results(p, shared, tiles, warp - 1);
      } else {
        if (moves) GradientMover<CodesProduct, GradientTiles>(p, shared, warp - 1).run(tiles);
      }
    }
    __syncwarp();
  }
  // A block must not exit while the other one copies to it.
  hopper::cluster_sync();
#endif
}

}  // namespace trireme::kernels::cuda::fused
