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

}  // namespace fused
}  // namespace trireme::kernels::cuda
