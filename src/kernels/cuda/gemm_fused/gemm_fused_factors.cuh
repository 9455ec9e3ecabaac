// SPDX-License-Identifier: Apache-2.0
// What the warps that multiply combine their values with: matrices beside a tile, which they copy
// to the place of the values while products are in flight.
#pragma once

#include "kernels/cuda/gemm_fused/gemm_fused_chunks.cuh"

namespace trireme::kernels::cuda::fused {

// Requests 16 rows of 16-byte chunks, one of each row for every lane, to the places of a warp's
// values. Rows that are not inside become zero. REQUIRES: `place` is that of a multiple of 8.
constexpr int rows_of_warp = 16;
__device__ inline void request_rows(uint32_t place, const Beside& x, const Chunk& first,
                                    int inside) {
  const int lane = static_cast<int>(threadIdx.x) % warp_size;
  uint64_t from = address_of(x, first);
#pragma unroll
  for (int row = 0; row < rows_of_warp; ++row, from += x.stride) {
    copy_to_shared(place + row * row_bytes + swizzled(row, lane), from, row < inside);
  }
}

// The gradient in bf16 that a product is added to, copied to the places of a warp's values while
// products are in flight.
class Addends {
 public:
  __device__ Addends(Shared shared, int half)
      : lane_(static_cast<int>(threadIdx.x) % warp_size),
        first_(half * half_m +
               static_cast<int>(threadIdx.x) % group_threads / warp_size * rows_of_warp),
        place_(shared.values(first_)) {}

  // REQUIRES: the place of the values is free.
  template <typename Product>
  __device__ void begin(const Product& p, const Tile& tile) const {
    const Beside d = beside(p.d + tile.group * p.d_group_stride, p.d_stride, tile.row, tile.column);
    const Chunk first = {static_cast<uint32_t>(first_), static_cast<uint32_t>(lane_ * 16), true};
    const int inside = (tile.column + lane_ * W < p.n ? p.m - tile.row : 0) - first_;
    request_rows(place_, d, first, inside);
  }

 private:
  int lane_, first_;
  uint32_t place_;
};

// gelu'(x) of a tile, computed by the warps that multiply while their products are in flight: each
// computes the 16 rows of its values. x is copied to the place of the values, and the factors, in
// bf16, replace it there. A lane has a chunk of every row, which no other lane accesses. gelu(x) is
// written at the same time.
class Factors {
 public:
  __device__ Factors(const FusedProduct& p, Shared shared, int half)
      : p_(p),
        lane_(static_cast<int>(threadIdx.x) % warp_size),
        first_(half * half_m + static_cast<int>(threadIdx.x) % group_threads / warp_size * rows),
        place_(shared.values(first_)) {}

  // Requests x, and spreads the work evenly over that many turns. REQUIRES: the place of the values
  // is free.
  __device__ void begin(const Tile& tile, int turns) {
    const Beside x = beside(p_.x, p_.x_stride, tile.row, tile.column);
    recomputed_ = beside(p_.recomputed, p_.recomputed_stride, tile.row, tile.column);
    inside_ = (tile.column + lane_ * W < p_.n ? p_.m - tile.row : 0) - first_;
    request_rows(place_, x, chunk(0), inside_);
    done_ = 0;
    turns_ = turns;
    due_ = 0;
  }
  // One turn.
  __device__ void make_share() {
    due_ += rows;
    wait_for_copies();
#pragma unroll 1
    for (; due_ >= turns_ && done_ < rows; due_ -= turns_) make_row();
  }
  __device__ void make_rest() {
    wait_for_copies();
#pragma unroll 1
    while (done_ < rows) make_row();
  }

 private:
  static constexpr int rows = rows_of_warp;

  __device__ Chunk chunk(int row) const {
    return {static_cast<uint32_t>(first_ + row), static_cast<uint32_t>(lane_ * 16), row < inside_};
  }
  __device__ uint32_t place(int row) const {
    return place_ + row * row_bytes + swizzled(row, lane_);
  }
  __device__ void make_row() {
    float x[W], factor[W], y[W];
    unpack<bf16>(load_shared(place(done_)), x);
    gelu_with_grad(x, y, factor);
    store_shared(place(done_), pack<bf16>(factor));
    Chunk recomputed = chunk(done_);
    recomputed.is_inside = recomputed.is_inside && p_.recomputed != nullptr;
    put(recomputed_, recomputed, pack<bf16>(y));
    ++done_;
  }

  const FusedProduct& p_;
  int lane_, first_;
  uint32_t place_;
  Beside recomputed_ = {};
  int inside_ = 0, done_ = 0;
  int turns_ = 0, due_ = 0;  // in rows / turns_
};

}  // namespace trireme::kernels::cuda::fused
