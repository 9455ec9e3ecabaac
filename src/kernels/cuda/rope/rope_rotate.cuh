// SPDX-License-Identifier: Apache-2.0
// Launches the rotation, which rope_backward without weights uses, too.
#pragma once

#include "kernels/cuda/rope/rope.cuh"

namespace trireme::kernels::cuda {

struct RopeRotation {
  InRows x, q_weight, k_weight;  // weights: both or none
  OutRows y;
  RopeTable table;
  int64_t tokens, heads, q_heads;
  float eps;
  float* rstd = nullptr;  // with weights
  int64_t rstd_stride = 0;
  float sin_sign = 1;  // -1: the opposite rotation

  __device__ float reciprocal_rms(float squares) const {
    return 1.0F / sqrtf(squares / static_cast<float>(table.K) + eps);
  }
};

// REQUIRES, if is_fast: is_fast_heads() of x and y, weights of `dtype` aligned to 16 bytes.
void rope_rotate(cudaStream_t stream, const RopeRotation& a, base::DType dtype, bool is_fast);

}  // namespace trireme::kernels::cuda
