// SPDX-License-Identifier: Apache-2.0
// Products of groups of rows in 8 bits, on the parts of grouped.cuh: the same tiles, stages and
// ways of results to memory. A step along k has 128 codes, as many bytes as 64 bf16, and both
// operands are contiguous along k: weights of input gradients and the operands of weight gradients
// come transposed.
//
// How sums are taken (Sums):
//   fast    all products of an element in the tensor core, which keeps about 14 bits of a sum;
//           one scale for each operand;
//   split   `promoted` instructions of 32 products each, then their sum is added in fp32; one scale
//           for each operand;
//   blocks  as split; the sums of 128 are multiplied by the scales of the row and of the block of
//           the weight;
//   rows    as split; the sums of 128 are multiplied by the scales of both rows (weight gradients).
//           With one instruction at a time, the next one runs while the last one's result is added
//           (PipelinedStep).
//
// A warpgroup has 64 x 256 values in registers, and a second set for the part of the columns that
// is in the tensor core. While one warpgroup adds, the other one multiplies.
#pragma once

#include "kernels/cuda/experts/grouped.cuh"
#include "kernels/cuda/gemm_fused/gemm_fused_finish.cuh"
#include "kernels/cuda/gemm_fused/gemm_fused_multiply.cuh"
#include "kernels/cuda/gemm_fused/hopper_codes.cuh"

namespace trireme::kernels::cuda {

enum class Sums : uint8_t { fast, split, blocks, rows };

struct CodesProduct : GroupedProduct {
  const float* scale_a;  // [1]; blocks, rows: [k / 128, a_stride]
  const float* scale_b;  // [groups], weight gradients [1]; blocks: [groups][b_rows, b_stride];
                         // rows: [k / 128, b_stride]
  int64_t a_stride, b_stride;
  int b_rows;
};

namespace fused {

constexpr int code_steps = 128;  // codes along k of a step
constexpr Box codes_box = {tile_m, code_steps};
static_assert(a_bytes == tile_m * code_steps && b_bytes == tile_n * code_steps);
static_assert(tile_m == half_n);  // one box for both operands

// Scales of b's rows, a step each, after the starts of groups.
constexpr int max_shared_groups_of_codes = 1023;
constexpr uint32_t scales_begin =
    (starts_begin + 8 * (max_shared_groups_of_codes + 1) + 127) / 128 * 128;
constexpr uint32_t scales_bytes = tile_n * 4;
constexpr uint32_t codes_shared_bytes = scales_begin + stages * scales_bytes + 1024;
static_assert(codes_shared_bytes <= 227 * 1024);
__device__ inline uint32_t scales_of_b(Shared shared, int stage) {
  return shared.base + scales_begin + stage * scales_bytes;
}

// The number of steps of a tile; both kinds of tiles count steps of 64.
template <typename AnyTiles>
__device__ int steps_of_codes(const AnyTiles& tiles) {
  static_assert(2 * tile_k == code_steps);
  return (tiles.steps() + 1) / 2;
}

// Run by one thread.
template <Fusion fusion, Sums sums>
__device__ void copy_codes(const CodesProduct& p, Shared shared, TilesOfGroups<fusion> tiles,
                           uint32_t rank) {
  constexpr uint16_t both = (1U << blocks_of_cluster) - 1;
  Turn turn;
  for (; tiles.has_tile(); tiles.advance()) {
    const Tile tile = tiles.tile();
    const int steps = steps_of_codes(tiles);
    int first = 0, group = 0;
    bool is_common = true;
    if constexpr (is_weight_grad(fusion)) {
      first = tiles.first();
    } else {
      const auto groups = tiles.groups(tile);
      group = groups.own;
      is_common = groups.is_common;
    }
    // Scales that the row has at these columns. A group without rows has no scales.
    const bool has_scales = sums == Sums::rows && first < p.end_row;
    const auto columns =
        static_cast<int>(min(static_cast<int64_t>(tile_n), p.b_stride - tile.column));
    const uint32_t bytes = a_bytes + b_bytes + (has_scales ? 4U * columns : 0U);
    for (int step = 0; step < steps; ++step, turn.advance()) {
      const int k = first + step * code_steps;
      const uint32_t full = shared.full(turn.stage);
      const uint32_t a = shared.a(turn.stage), b = shared.b(turn.stage);
      hopper::wait(shared.empty(turn.stage), turn.parity ^ 1);
      hopper::arrive_expecting(full, bytes);
      hopper::copy_tile(a, &p.a, k, tile.row, full);
      const auto copy_half = [&](int half, bool to_both) {
        const uint32_t to = b + half * (b_bytes / 2);
        const int row = tile.column + half * half_n;
        if (to_both) {
          hopper::copy_tile_to_all(to, &p.b, k, row, group, full, both);
        } else {
          hopper::copy_tile(to, &p.b, k, row, group, full);
        }
      };
      const int half = static_cast<int>(rank);
      copy_half(half, is_common);
      if (!is_common) copy_half(1 - half, false);
      if (has_scales) {
        const float* scales = p.scale_b + k / code_steps * p.b_stride + tile.column;
        hopper::copy_row(scales_of_b(shared, turn.stage), scales, 4U * columns, full);
      }
    }
  }
}

// The scales of a thread's values: of its two rows, and of b's blocks.
template <Fusion fusion, Sums sums>
class CodeScales {
 public:
  __device__ CodeScales(const CodesProduct& p, const TilesOfGroups<fusion>& tiles, int half)
      : p_(p) {
    const Tile tile = tiles.tile();
    const int thread = static_cast<int>(threadIdx.x) % group_threads;
    row_ = tile.row + half * half_m + 16 * (thread / warp_size) + thread % warp_size / 4;
    int group = 0;
    if constexpr (is_weight_grad(fusion)) {
      block_ = tiles.first() / code_steps;
      is_empty_ = tiles.first() >= p.end_row;
    } else {
      group = tiles.groups(tile).own;
    }
    if constexpr (sums == Sums::fast || sums == Sums::split) {
      factor_ = p.scale_a[0] * p.scale_b[group];
    } else if constexpr (sums == Sums::blocks) {
      const int first = tile.column / half_n;
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int64_t row = static_cast<int64_t>(group) * p.b_rows + min(first + i, p.b_rows - 1);
        blocks_[i] = p.scale_b + row * p.b_stride;
      }
    }
  }

  // Requests the scales of a step.
  __device__ void fetch(int step) {
    if constexpr (sums == Sums::blocks || sums == Sums::rows) {
      if (is_empty_) return;
      const float* at = p_.scale_a + (block_ + step) * p_.a_stride + row_;
      a_[0] = row_ < p_.m ? hopper::load_early(at) : 0.0F;
      a_[1] = row_ + 8 < p_.m ? hopper::load_early(at + 8) : 0.0F;
      if constexpr (sums == Sums::blocks) {
        b_[0] = hopper::load_early(blocks_[0] + step);
        b_[1] = hopper::load_early(blocks_[1] + step);
      }
    }
  }

  // d += part, scaled: the values of columns [first, ...) of the tile.
  template <int first, int columns>
  __device__ void add(const float (&part)[columns / 2], uint32_t scales, float (&d)[tile_n / 2]) {
    if constexpr (sums == Sums::split) {
#pragma unroll
      for (int i = 0; i < columns / 2; ++i) d[first / 2 + i] += part[i];
    } else if constexpr (sums == Sums::blocks) {
      const float b = b_[first / half_n];
      const float factors[2] = {a_[0] * b, a_[1] * b};
#pragma unroll
      for (int i = 0; i < columns / 2; ++i) {
        d[first / 2 + i] = fmaf(part[i], factors[i / 2 % 2], d[first / 2 + i]);
      }
    } else if constexpr (sums == Sums::rows) {
      if (is_empty_) return;
      const uint32_t at = scales + 4 * first + 8 * (threadIdx.x % 4);
#pragma unroll
      for (int chunk = 0; chunk < columns / 8; ++chunk) {
        float b[2];
        asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];"
                     : "=f"(b[0]), "=f"(b[1])
                     : "r"(at + 32 * chunk)
                     : "memory");
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          const int i = 4 * chunk + j;
          d[first / 2 + i] = fmaf(part[i] * a_[j / 2], b[j % 2], d[first / 2 + i]);
        }
      }
    }
  }

  __device__ void finish(float (&d)[tile_n / 2]) const {
    if constexpr (sums == Sums::fast || sums == Sums::split) {
#pragma unroll
      for (float& value : d) value *= factor_;
    }
  }

 private:
  const CodesProduct& p_;
  int row_ = 0;
  int64_t block_ = 0;  // of scales along k, the first
  bool is_empty_ = false;
  float factor_ = 1;
  const float* blocks_[2] = {};
  float a_[2] = {}, b_[2] = {};
};

// Columns whose products are in the tensor core at a time, and the instructions of 32 along k after
// which their sums are added in fp32.
template <Fusion fusion>
constexpr int part_columns = fusion == Fusion::weight_grad_bf16 ? 64 : 128;

// One step whose products are added in fp32 after each instruction, with scales of both rows. Sums
// of 128 come first, then their scales, so that a value takes five additions or multiplications a
// step. Columns are computed 64 at a time; of three sets of registers, one has the sum of the four
// instructions, and the next instruction always runs while the result of the last one is added.
// Calls begun() when all warps have begun the step.
template <hopper::CodeFormat format>
class PipelinedStep {
 public:
  __device__ PipelinedStep(uint64_t a, uint64_t b) : a_(a), b_(b) {}

  template <typename Scales, typename Begun>
  __device__ void run(Scales& scales, uint32_t scales_at, const Begun& begun,
                      float (&d)[tile_n / 2]) {
    issue<0>();
    each<1>(scales, scales_at, begun, d);
    hopper::products_wait<0>();
    take<last>(scales, scales_at, d);
  }

 private:
  static constexpr int columns = 64, instructions = code_steps / 32;
  static constexpr int last = tile_n / columns * instructions - 1;

  // The set that has the sum of a part of the columns, and that of an instruction. The first of the
  // next part is that of the third instruction, whose result is added by then.
  static constexpr int sum_of(int part) { return (3 - part % 3) % 3; }
  static constexpr int set_of(int number) {
    const int sum = sum_of(number / instructions), i = number % instructions;
    return (sum + (i == 0 ? 0 : i % 2 == 1 ? 1 : 2)) % 3;
  }

  template <int number>
  __device__ void issue() {
    constexpr uint64_t k = (number % instructions * 32) >> 4;
    constexpr uint64_t column = (number / instructions * columns * 128) >> 4;
    hopper::products_begin();
    hopper::multiply_codes<format>(sets_[set_of(number)], a_ + k, b_ + column + k, false);
    hopper::products_commit();
  }
  template <int number, typename Scales>
  __device__ void take(Scales& scales, uint32_t scales_at, float (&d)[tile_n / 2]) {
    constexpr int part = number / instructions;
    float(&sum)[columns / 2] = sets_[sum_of(part)];
    if constexpr (number % instructions > 0) {
      const float(&more)[columns / 2] = sets_[set_of(number)];
#pragma unroll
      for (int i = 0; i < columns / 2; ++i) sum[i] += more[i];
    }
    if constexpr (number % instructions == instructions - 1) {
      scales.template add<part * columns, columns>(sum, scales_at, d);
    }
  }
  template <int number, typename Scales, typename Begun>
  __device__ void each(Scales& scales, uint32_t scales_at, const Begun& begun,
                       float (&d)[tile_n / 2]) {
    issue<number>();
    hopper::products_wait<1>();
    if constexpr (number == 1) begun();
    take<number - 1>(scales, scales_at, d);
    if constexpr (number < last) each<number + 1>(scales, scales_at, begun, d);
  }

  uint64_t a_, b_;
  float sets_[3][columns / 2];
};

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

}  // namespace fused
}  // namespace trireme::kernels::cuda
