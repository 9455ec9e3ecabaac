// SPDX-License-Identifier: Apache-2.0
// The rows of a tile that the warps that multiply finish themselves: see own_rows in
// gemm_fused.cuh.
#pragma once

#include "kernels/cuda/gemm_fused/gemm_fused_finish.cuh"

namespace trireme::kernels::cuda::fused {

// The first rows of the 16 that a warp has left in the place of the values. In every turn it
// finishes one row or, for swiglu, two.
template <Fusion fusion, typename Product>
class OwnRows {
 public:
  __device__ OwnRows(const Product& p, Shared shared, int half)
      : p_(p),
        shared_(shared),
        lane_(static_cast<int>(threadIdx.x) % warp_size),
        first_(half * half_m + static_cast<int>(threadIdx.x) % group_threads / warp_size * 16) {}

  // After the warp has left its values.
  __device__ void begin(const Tile& tile, int end_row) {
    tile_ = tile;
    end_ = end_row;
    done_ = 0;
    __syncwarp();
    fetch();
  }
  // In this step of so many. The first one has other work, and x needs time to arrive.
  __device__ void make_share(int step, int steps) {
    if (done_ < own_rows<fusion> && step * own_rows < fusion >> done_ * steps) make();
  }
  __device__ void make_rest() {
#pragma unroll 1
    while (done_ < own_rows<fusion>) make();
  }

 private:
  static constexpr bool is_pair = is_swiglu(fusion);
  static constexpr int at_once = is_pair ? 2 : 1, lanes_of_row = warp_size / at_once;

  __device__ int row() const { return first_ + done_ + lane_ / lanes_of_row; }
  __device__ Chunk chunk() const {
    const int at = lane_ % lanes_of_row, column = (is_pair ? tile_.column / 2 : tile_.column);
    const bool is_inside =
        column + at * W < (is_pair ? p_.n / 2 : p_.n) && tile_.row + row() < end_;
    return {static_cast<uint32_t>(row()), static_cast<uint32_t>(at * 16), is_inside};
  }
  // Requests what the next turn needs.
  __device__ void fetch() {
    weight_ = tile_.row + row() < end_ ? p_.row_weight[tile_.row + row()] : 0;
    if constexpr (is_swiglu_grad(fusion)) {
      const Matrices matrices = matrices_of<fusion>(p_, tile_);
      x_ = {};
      get(matrices.x, chunk(), x_.first);
      get(matrices.x, moved(chunk(), matrices.second), x_.second);
    }
  }
  __device__ void make() {
    const Matrices matrices = matrices_of<fusion>(p_, tile_);
    const int at = lane_ % lanes_of_row;
    const uint32_t place = shared_.values(row());
    Values of;
    of.first = load_shared(place + swizzled(row(), at));
    if constexpr (is_pair) {
      of.second = load_shared(place + swizzled(row(), at + lanes_of_row));
      finish_swiglu<true>(matrices, chunk(), of, weight_);
    } else {
      const float sum = warp_sum(finish_weighted_swiglu_grad(matrices, chunk(), of, x_, weight_));
      if (lane_ == 0 && tile_.row + row() < end_) {
        p_.row_sums[tile_.column / tile_n * p_.row_sums_stride + tile_.row + row() - p_.first_row] =
            sum;
      }
    }
    done_ += at_once;
    if (done_ < own_rows<fusion>) fetch();
  }

  const Product& p_;
  Shared shared_;
  int lane_, first_;
  Tile tile_ = {};
  int end_ = 0, done_ = own_rows<fusion>;
  Values x_ = {};
  float weight_ = 0;
};

}  // namespace trireme::kernels::cuda::fused
