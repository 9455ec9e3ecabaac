// SPDX-License-Identifier: Apache-2.0
// What the two kernels over logits share: the exponential, and how a row is cut into vectors.
#pragma once

#include "kernels/cuda/values.cuh"

namespace trireme::kernels::cuda {

// e^x for x <= 0. Of bf16 logits the hardware's own 2^x, one instruction within 2^-22, serves: the
// terms of the sum where the rounding of x log2(e) is larger than that are small. NaN stays NaN.
template <typename T>
__device__ inline float exp_of(float x) {
  if constexpr (std::is_same_v<T, bf16>) {
    float result;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x * 0x1.715476p0F));
    return result;
  } else {
    return expf(x);
  }
}

// Where column entry `label` of the vocabulary lies in this row, or -1.
__device__ inline int64_t column_of(int32_t label, int64_t first_column, int64_t V) {
  const int64_t column = label - first_column;
  return label >= 0 && column >= 0 && column < V ? column : -1;
}

// May the rows of logits be moved 16 bytes at a time, up to the last whole vector of a row?
inline bool rows_are_aligned(const device::ConstTensor& logits) {
  return reinterpret_cast<uintptr_t>(logits.data) % 16 == 0 &&
         logits.row_stride * base::size_of(logits.dtype) % 16 == 0;
}

}  // namespace trireme::kernels::cuda
