// SPDX-License-Identifier: Apache-2.0
// The backward of causal attention by Trireme's kernel for Hopper (attention_flash.cuh):
// deterministic, and often faster than cuDNN's nondeterministic one (spec::is_flash_fastest()).
#pragma once

#include "kernels/args.h"
#include "kernels/cuda/gemm_fused/tensor_maps.h"

namespace trireme::kernels::cuda {

class FlashAttention {
 public:
  explicit FlashAttention(device::CudaDevice& device) : maps_(device) {}

  // Queues the work and returns true, or returns false, with nothing queued, if the kernel does not
  // compute this shape, has too few blocks for this GPU, or the GPU is not a Hopper. REQUIRES:
  // is_fused(device, args).
  [[nodiscard]] bool backward(device::CudaStream& stream, const AttentionBackwardArgs& args) const;

 private:
  TensorMaps maps_;
};

}  // namespace trireme::kernels::cuda
