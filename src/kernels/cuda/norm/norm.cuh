// SPDX-License-Identifier: Apache-2.0
// Shared by the forward and backward of a norm.
#pragma once

#include "kernels/cuda/table_ops.h"
#include "kernels/cuda/values.cuh"

namespace trireme::kernels::cuda {

// xhat = (s - mean) r, and y = xhat weight + bias; rms has neither mean nor bias. Each operation is
// an intrinsic, so that norm_backward's y has the bits of norm_forward's.
template <NormKind kind>
__device__ inline float norm_xhat(float s, float mean, float r) {
  if constexpr (kind == NormKind::rms) return __fmul_rn(s, r);
  return __fmul_rn(__fsub_rn(s, mean), r);
}
template <NormKind kind>
__device__ inline float norm_y(float xhat, float weight, float bias) {
  if constexpr (kind == NormKind::rms) return __fmul_rn(xhat, weight);
  return __fmaf_rn(xhat, weight, bias);
}

}  // namespace trireme::kernels::cuda
