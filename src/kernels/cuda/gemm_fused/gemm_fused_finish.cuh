// SPDX-License-Identifier: Apache-2.0
// The warps that apply the activation to finished tiles and write the results: see gemm_fused.cuh.
// They have about as much time for a tile as the multiplication takes, and share the multiprocessor
// with it: instructions count.
#pragma once

#include "kernels/cuda/gemm_fused/gemm_fused_activation.cuh"

namespace trireme::kernels::cuda::fused {

// A warp processes groups of four rows. Each of its 32 lanes has a chunk of one row or, for swiglu,
// whose chunk of up belongs to that of gate, of two rows.
constexpr int rows_of_group = 4, groups = tile_m / rows_of_group;
// Groups whose x is in flight. With little to compute, memory latency is the limit.
template <Fusion fusion>
constexpr int groups_ahead = fusion == Fusion::factor ? 3 : 1;

// The sums of a tile's columns. A warp sums every third part of 16 columns.
class ColumnSums {
 public:
  __device__ ColumnSums(Shared shared, int warp)
      : shared_(shared), lane_(static_cast<int>(threadIdx.x) % warp_size), warp_(warp) {}

  __device__ void begin() {
#pragma unroll
    for (auto& part : sums_) part[0][0] = part[0][1] = part[1][0] = part[1][1] = 0;
  }
  // For the rows of one half.
  __device__ void add(int half) {
#pragma unroll 1
    for (int first = half * half_m; first < (half + 1) * half_m; first += 16) {
      const int row = first + lane_ % 16;
      uint32_t m[parts][4];  // all are requested before the first is used
#pragma unroll
      for (int i = 0; i < parts; ++i) {
        const int column = min(column_of(i), tile_n - 16);
        hopper::load_matrices_transposed(
            shared_.values(row) + swizzled(row, column / W + lane_ / 16), m[i]);
      }
#pragma unroll
      for (int i = 0; i < parts; ++i) {
        hopper::add_column_sums(sums_[i][0], m[i][0], m[i][1]);
        hopper::add_column_sums(sums_[i][1], m[i][2], m[i][3]);
      }
    }
  }
  __device__ void store(const FusedProduct& p, const Tile& tile) const {
    if (lane_ >= 4 || tile.row >= p.m) return;
    float* row = p.sums + static_cast<int64_t>(tile.row / tile_m) * p.n;
#pragma unroll
    for (int i = 0; i < parts; ++i) {
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        const int at = column_of(i) + 8 * j + 2 * lane_, column = tile.column + at;
        if (at >= tile_n || column >= p.n) continue;
        *reinterpret_cast<float2*>(row + column) = make_float2(sums_[i][j][0], sums_[i][j][1]);
      }
    }
  }

 private:
  static constexpr int parts = (tile_n / 16 + finishing_warps - 1) / finishing_warps;
  __device__ int column_of(int part) const { return 16 * (warp_ + part * finishing_warps); }

  Shared shared_;
  int lane_, warp_;
  float sums_[parts][2][2];
};

// Weights of the rows of a tile that a warp finishes, in its order: those of its first 32 rows, one
// a lane, and those of the rest.
class RowWeights {
 public:
  __device__ void fetch(const float* weights, int rows, int warp) {
    const int lane = static_cast<int>(threadIdx.x) % warp_size;
    const auto weight_of = [&](int number) {
      const int group = warp + number / rows_of_group * finishing_warps;
      const int row = group * rows_of_group + number % rows_of_group;
      return group < groups && row < rows ? weights[row] : 0;
    };
    first_ = weight_of(lane);
    rest_ = weight_of(lane + warp_size);
  }
  __device__ float of(int group, int row_of_group) const {
    const int at = group / finishing_warps * rows_of_group;
    return __shfl_sync(0xffffffffU, at < warp_size ? first_ : rest_, at % warp_size + row_of_group);
  }

 private:
  float first_, rest_;
};

// The sum over lanes of each of four values: lane i gets that of value i / 8. The order of
// additions is fixed.
__device__ inline float sum_of_four(const float (&v)[rows_of_group]) {
  const int lane = static_cast<int>(threadIdx.x) % warp_size;
  const bool is_high = lane >= 16, is_odd = lane % 16 >= 8;
  float a = is_high ? v[2] : v[0], b = is_high ? v[3] : v[1];
  a += __shfl_xor_sync(0xffffffffU, is_high ? v[0] : v[2], 16);
  b += __shfl_xor_sync(0xffffffffU, is_high ? v[1] : v[3], 16);
  float sum = is_odd ? b : a;
  sum += __shfl_xor_sync(0xffffffffU, is_odd ? a : b, 8);
#pragma unroll
  for (int offset = 4; offset > 0; offset /= 2) sum += __shfl_xor_sync(0xffffffffU, sum, offset);
  return sum;
}

template <Fusion fusion, typename Product, typename AnyTiles>
__device__ void finish_tiles(const Product& p, Shared shared, AnyTiles tiles, int warp) {
  constexpr bool is_pair = is_swiglu(fusion), has_weights = has_row_weights(fusion);
  constexpr int rows_at_once = is_pair ? 2 : 1, lanes_of_row = warp_size / rows_at_once;
  constexpr int turns = rows_of_group / rows_at_once;
  const int lane = static_cast<int>(threadIdx.x) % warp_size;
  const int chunk = lane % lanes_of_row, lane_row = lane / lanes_of_row;
  const int columns = is_pair ? p.n / 2 : p.n;
  ColumnSums sums(shared, warp);
  uint32_t parity = 0;
  for (; tiles.has_tile(); tiles.advance(), parity ^= 1) {
    const Tile tile = tiles.tile();
    Matrices matrices = matrices_of<fusion>(p, tile);
    if constexpr (is_weight_grad(fusion)) {
      matrices.d = beside(p.d + tile.group * p.d_group_stride, p.d_stride, tile.row, tile.column);
    }
    const int first_column = is_pair ? tile.column / 2 : tile.column;
    const int rows_there = min(tile_m, tiles.end_row() - tile.row);
    const int rows_inside = first_column + chunk * W < columns ? rows_there : 0;
    RowWeights weights;
    if constexpr (has_weights) weights.fetch(p.row_weight + tile.row, rows_there, warp);
    float* sums_of_rows = nullptr;
    if constexpr (fusion == Fusion::weighted_swiglu_grad) {
      sums_of_rows = p.row_sums + tile.column / tile_n * p.row_sums_stride + tile.row - p.first_row;
    }
    const auto chunk_of = [&](int group, int turn) -> Chunk {
      const int row = group * rows_of_group + turn * rows_at_once + lane_row;
      return {static_cast<uint32_t>(row), static_cast<uint32_t>(chunk * 16), row < rows_inside};
    };
    constexpr bool has_x = is_swiglu_grad(fusion) || fusion == Fusion::factor;
    constexpr int ahead = groups_ahead<fusion>;
    Values x[ahead][turns] = {};
    const auto fetch = [&](Values& to, int group, int turn) {
      const Chunk c = chunk_of(group, turn);
      if constexpr (fusion == Fusion::factor) to.first = {};  // is summed, inside or not
      get(matrices.x, c, to.first);
      if constexpr (is_swiglu_grad(fusion)) {
        get(matrices.x, moved(c, matrices.second), to.second);
      }
    };
    if constexpr (has_x) {
#pragma unroll
      for (int i = 0; i < ahead; ++i) {
#pragma unroll
        for (int turn = 0; turn < turns; ++turn) {
          fetch(x[i][turn], warp + i * finishing_warps, turn);
        }
      }
    }
    const bool adds = fusion == Fusion::gelu_grad && p.sums != nullptr;
    if constexpr (fusion == Fusion::gelu_grad) sums.begin();
    float lane_sums[W] = {};
    hopper::wait(shared.made(0), parity);
    bool is_lower = false;
    const auto finish_group = [&](int group, Values(&at)[turns]) {
      if (!is_lower && group >= groups / 2) {
        if (adds) sums.add(0);
        hopper::arrive(shared.taken(0));
        hopper::wait(shared.made(1), parity);
        is_lower = true;
      }
      Values of[turns];
#pragma unroll
      for (int turn = 0; turn < turns; ++turn) {
        const int row = static_cast<int>(chunk_of(group, turn).row);
        of[turn].first = load_shared(shared.values(row) + swizzled(row, chunk));
        if constexpr (is_pair) {
          of[turn].second = load_shared(shared.values(row) + swizzled(row, chunk + lanes_of_row));
        }
      }
      float row_sums[turns] = {};
#pragma unroll
      for (int turn = 0; turn < turns; ++turn) {
        const Chunk c = chunk_of(group, turn);
        float weight = 1;
        if constexpr (has_weights) weight = weights.of(group, turn * rows_at_once + lane_row);
        if constexpr (fusion == Fusion::gelu) finish_gelu(matrices, c, of[turn]);
        if constexpr (fusion == Fusion::gelu_slope) finish_gelu_slope(matrices, c, of[turn]);
        // The values are multiplied by the factors already.
        if constexpr (fusion == Fusion::gelu_grad) put(matrices.d, c, of[turn].first);
        if constexpr (fusion == Fusion::weight_grad_bf16) put(matrices.d, c, of[turn].first);
        if constexpr (fusion == Fusion::factor) {
          finish_factor(matrices, c, of[turn], at[turn], lane_sums);
        }
        if constexpr (is_pair) finish_swiglu<has_weights>(matrices, c, of[turn], weight);
        if constexpr (fusion == Fusion::swiglu_grad) {
          finish_swiglu_grad(matrices, c, of[turn], at[turn]);
        }
        if constexpr (fusion == Fusion::weighted_swiglu_grad) {
          row_sums[turn] = finish_weighted_swiglu_grad(matrices, c, of[turn], at[turn], weight);
        }
        // Requests the x of a later group as soon as its place is free; no row follows the last.
        if constexpr (has_x) fetch(at[turn], group + ahead * finishing_warps, turn);
      }
      if constexpr (fusion == Fusion::weighted_swiglu_grad) {
        const float sum = sum_of_four(row_sums);
        const int row = group * rows_of_group + lane / (warp_size / rows_of_group);
        if (lane % (warp_size / rows_of_group) == 0 && row < rows_there) sums_of_rows[row] = sum;
      }
    };
#pragma unroll 1
    for (int first = warp; first < groups; first += ahead * finishing_warps) {
#pragma unroll
      for (int i = 0; i < ahead; ++i) {
        const int group = first + i * finishing_warps;
        if (group < groups) finish_group(group, x[i]);
      }
    }
    if (adds) sums.add(1);
    hopper::arrive(shared.taken(1));
    if (adds) sums.store(p, tile);
    if (fusion == Fusion::factor && p.sums != nullptr && rows_inside > 0) {
      const int64_t row = static_cast<int64_t>(tile.row / tile_m) * finishing_warps + warp;
      store_floats(p.sums + row * p.n + tile.column + chunk * W, lane_sums);
    }
  }
}

}  // namespace trireme::kernels::cuda::fused
