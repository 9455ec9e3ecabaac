// SPDX-License-Identifier: Apache-2.0
// The two ops of attention: cuDNN for bf16, causal, sequences of equal length, common head sizes
// and aligned memory, otherwise the general kernels.
#include "kernels/cuda/attention/attention_general.h"
#include "kernels/cuda/attention/attention_plans.h"
#include "kernels/cuda/libraries.h"
#include "kernels/cuda/table_ops.h"

namespace trireme::kernels::cuda {

void attention_forward(Stream& stream, const AttentionForwardArgs& args) {
  device::CudaStream& on = device::cuda_stream(stream);
  device::CudaDevice& device = on.cuda_device();
  const bool is_done =
      is_fused(device, args) && Libraries::of(device).attention_plans().forward(on, args);
  if (!is_done) general_attention_forward(on, args);
}

void attention_backward(Stream& stream, const AttentionBackwardArgs& args) {
  device::CudaStream& on = device::cuda_stream(stream);
  device::CudaDevice& device = on.cuda_device();
  const bool is_done =
      is_fused(device, args) && Libraries::of(device).attention_plans().backward(on, args);
  if (!is_done) general_attention_backward(on, args);
}

}  // namespace trireme::kernels::cuda
