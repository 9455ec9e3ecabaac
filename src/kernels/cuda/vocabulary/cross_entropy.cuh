// SPDX-License-Identifier: Apache-2.0
// Shared by the kernels over logits: the exponential, the sums of a row, its gradient, and the
// losses of the rows.
#pragma once

#include <cfloat>

#include "kernels/cuda/table_ops.h"
#include "kernels/cuda/values.cuh"

namespace trireme::kernels::cuda {

// e^x for x <= 0. For 16-bit logits it is the hardware's 2^x, one instruction within 2^-22: the
// terms of the sum for which the rounding of x log2(e) is larger than that are small. NaN stays
// NaN.
template <typename T>
__device__ inline float exp_of(float x) {
  if constexpr (!std::is_same_v<T, float>) {
    float result;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x * 0x1.715476p0F));
    return result;
  } else {
    return expf(x);
  }
}

// The column of vocabulary entry `label` in this row, or -1.
__device__ inline int64_t column_of(int32_t label, int64_t first_column, int64_t V) {
  const int64_t column = label - first_column;
  return label >= 0 && column >= 0 && column < V ? column : -1;
}

// The maximum of logits and the sum of exp(logit - max), taken together: the sum is scaled when the
// maximum grows. The maximum starts at the lowest finite number, so that logits of -infinity (and
// threads without logits) add zero. A logit that is NaN or +infinity makes the sum NaN.
struct MaxAndSum {
  float max = -FLT_MAX, sum = 0;

  template <typename T, int W>
  __device__ void add(const float (&values)[W]) {
    float highest = max;
#pragma unroll
    for (int j = 0; j < W; ++j) highest = fmaxf(highest, values[j]);
    float part = 0;
#pragma unroll
    for (int j = 0; j < W; ++j) part += exp_of<T>(values[j] - highest);
    sum = sum * exp_of<T>(max - highest) + part;
    max = highest;
  }

  // All lanes receive the same bits.
  __device__ void add_over_warp() {
    const float highest = warp_max(max);
    sum = warp_sum(sum * expf(max - highest));
    max = highest;
  }
  // All threads of the block receive the same bits. `shared` may be used again after the next
  // barrier that follows this one.
  using Shared = float[2][warp_size];
  __device__ void add_over_block(Shared& shared) {
    const int warp = threadIdx.x / warp_size, lane = threadIdx.x % warp_size;
    add_over_warp();
    if (lane == 0) {
      shared[0][warp] = max;
      shared[1][warp] = sum;
    }
    __syncthreads();
    const bool has_warp = lane < static_cast<int>(blockDim.x) / warp_size;
    max = has_warp ? shared[0][lane] : -FLT_MAX;
    sum = has_warp ? shared[1][lane] : 0.0F;
    add_over_warp();
  }
};

// Replaces logits of one row by their gradient. `label_column` is -1 if the label is not in the
// row.
struct RowGrad {
  float highest, factor;
  int64_t label_column;
  float scale;  // of the gradient; `factor` contains it

  // The W logits from column `first` on.
  template <typename T, int W>
  __device__ void apply(float (&values)[W], int64_t first) const {
#pragma unroll
    for (int j = 0; j < W; ++j) values[j] = exp_of<T>(values[j] - highest) * factor;
    if (label_column >= first && label_column < first + W) {
#pragma unroll
      for (int j = 0; j < W; ++j) {
        if (first + j == label_column) values[j] -= scale;
      }
    }
  }
};

__device__ inline float scale_at(const float* scale) { return scale == nullptr ? 1 : *scale; }

// ---- host side

// Returns whether rows of logits can be moved 16 bytes at a time, up to the last complete vector.
inline bool rows_are_aligned(const device::ConstTensor& logits) {
  return reinterpret_cast<uintptr_t>(logits.data) % 16 == 0 &&
         logits.row_stride * base::size_of(logits.dtype) % 16 == 0;
}

// Adds the losses of all rows, from their statistics, to `sums`, and writes them to `token_losses`
// if that is present: cross-entropy without its gradient. Uses the stream's workspace.
void add_losses(Stream& stream, const CrossEntropyGradArgs& args);

}  // namespace trireme::kernels::cuda
