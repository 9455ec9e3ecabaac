// SPDX-License-Identifier: Apache-2.0
// Shared by the kernels of norm_backward.cu.
#pragma once

#include "kernels/cuda/norm/norm.cuh"

namespace trireme::kernels::cuda {

constexpr int norm_max_threads = 512;  // of a block, and of the blocks of a multiprocessor

struct NormBackward {
  InRows dy, x, weight, bias, dresidual;
  OutRows dx, y;
  const float* stats;
  int64_t stats_stride;
  float* partials;
  int64_t partials_stride;
  int64_t T, D;
  float inverse_D;
  bool has_dbias, has_dresidual_sum;
  uint32_t* amax;  // of dx; may be null
};

// The start of the sums of dresidual in a row of partials, in units of D.
template <NormKind kind>
constexpr int dresidual_place = kind == NormKind::layer ? 2 : 1;

struct RowStats {
  float mean, r;
};
template <NormKind kind>
__device__ RowStats stats_at(const float* stats) {
  if constexpr (kind == NormKind::rms) return {0.0F, stats[0]};
  return {stats[0], stats[1]};
}

// The sums of n values over the block, which all threads receive. Lanes first distribute the values
// among themselves, so that n values cost few more exchanges than one. Calls alternate between two
// halves of `shared`, so that one barrier is enough: memory that the next call but one writes was
// read before the barrier of the next call.
template <int n>
struct alignas(4 * n) Sums {
  float at[n];
};
template <int n>
using SharedSums = Sums<n>[2][norm_max_threads / warp_size];

template <int n>
__device__ Sums<n> sums_over_block(Sums<n> sums, SharedSums<n>& shared, int turn) {
  static_assert(n == 1 || n == 2 || n == 4);
  constexpr unsigned all = 0xffffffffU;
  const int warp = threadIdx.x / warp_size, lane = threadIdx.x % warp_size;
  int offset = warp_size / 2;
#pragma unroll
  for (int half = n / 2; half > 0; half /= 2) {
    const bool is_upper = (lane & offset) != 0;
#pragma unroll
    for (int j = 0; j < half; ++j) {
      const float mine = is_upper ? sums.at[half + j] : sums.at[j];
      const float others = is_upper ? sums.at[j] : sums.at[half + j];
      sums.at[j] = mine + __shfl_xor_sync(all, others, offset);
    }
    offset /= 2;
  }
#pragma unroll
  for (int left = warp_size / n / 2; left > 0; left /= 2) {
    sums.at[0] += __shfl_xor_sync(all, sums.at[0], left);
  }
  // Lanes of the i-th n-th of a warp have value i.
  constexpr int lanes = warp_size / n;
  if (lane % lanes == 0) shared[turn][warp].at[lane / lanes] = sums.at[0];
  __syncthreads();
  Sums<n> total = {};
  const int warps = static_cast<int>(blockDim.x) / warp_size;
  for (int w = 0; w < warps; ++w) {
    const Sums<n> part = shared[turn][w];
#pragma unroll
    for (int j = 0; j < n; ++j) total.at[j] += part.at[j];
  }
  return total;
}

}  // namespace trireme::kernels::cuda
