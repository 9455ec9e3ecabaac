// SPDX-License-Identifier: Apache-2.0
// Copies between tensors of heads, around calls of cuDNN, which writes bf16 only.
#pragma once

#include <cstdint>

#include "device/cuda/cuda_device.h"

namespace trireme::kernels::cuda {

// [rows, heads, K] of f32 or bf16; K, and all strides, are multiples of 8.
struct HeadView {
  void* data = nullptr;
  int64_t row_stride = 0, head_stride = 0;
  bool is_bf16 = false;
};
struct HeadCount {
  int64_t rows = 0, heads = 0, K = 0;
};

// to = from, or to += from; to = 0 without `from.data`.
void copy_heads(const device::CudaStream&, const HeadView& to, const HeadView& from,
                const HeadCount& count, bool accumulates);

// Rows [first, first + rows) of every head of lse [heads, tokens] = -infinity.
void clear_lse(const device::CudaStream&, float* lse, int64_t heads, int64_t tokens, int64_t first,
               int64_t rows);

}  // namespace trireme::kernels::cuda
