// SPDX-License-Identifier: Apache-2.0
// General attention kernels: f32 and bf16, any sequence boundaries (documents), causal or not,
// grouped queries, any strides, head sizes up to 256. They use no atomics and are deterministic.
// They multiply in fp32 on CUDA cores: they cover what cuDNN does not support and are much slower.
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
