// SPDX-License-Identifier: Apache-2.0
// Trireme's own attention: f32 and bf16, any borders of sequences, causal or not, grouped queries,
// any strides, head sizes up to 256. No atomics: the same bits from run to run. It multiplies in
// fp32 on the CUDA cores, so it is for what cuDNN does not do, not for speed.
#pragma once

#include "device/cuda/cuda_device.h"
#include "kernels/args.h"

namespace trireme::kernels::cuda {

constexpr int64_t general_attention_max_head_dim = 256;

// Both throw ConfigError for a larger head size.
void general_attention_forward(const device::CudaStream&, const AttentionForwardArgs&);
// REQUIRES: a workspace of at least T H floats.
void general_attention_backward(const device::CudaStream&, const AttentionBackwardArgs&);

}  // namespace trireme::kernels::cuda
