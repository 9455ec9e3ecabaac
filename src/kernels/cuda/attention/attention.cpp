// SPDX-License-Identifier: Apache-2.0
// The ops of attention: cuDNN for bf16, causal, sequences of equal length, common head sizes and
// aligned memory, otherwise Trireme's kernels.
#include "kernels/cuda/attention/attention_plans.h"
#include "kernels/cuda/attention/attention_problem.h"
#include "kernels/cuda/libraries.h"
#include "kernels/cuda/table_ops.h"

namespace trireme::kernels::cuda {

void attention_forward(Stream& stream, const AttentionForwardArgs& args) {
  device::CudaStream& on = device::cuda_stream(stream);
  device::CudaDevice& device = on.cuda_device();
  const bool is_done =
      is_fused(device, args) && Libraries::of(device).attention_plans().forward(on, args);
  if (!is_done) attention_forward(on, problem_of(on, args, no_fused_length));
}

void attention_backward(Stream& stream, const AttentionBackwardArgs& args) {
  device::CudaStream& on = device::cuda_stream(stream);
  device::CudaDevice& device = on.cuda_device();
  const bool is_done =
      is_fused(device, args) && Libraries::of(device).attention_plans().backward(on, args);
  if (!is_done) attention_backward(on, problem_of(on, args, no_fused_length));
}

void attention_ranges_forward(Stream& stream, const AttentionRangesForwardArgs& args) {
  if (args.q.rows() == 0) return;
  device::CudaStream& on = device::cuda_stream(stream);
  const bool is_done =
      is_fused(args) && Libraries::of(on.cuda_device()).attention_plans().ranges_forward(on, args);
  if (!is_done) attention_forward(on, problem_of(on, args));
}

void attention_ranges_backward(Stream& stream, const AttentionRangesBackwardArgs& args) {
  device::CudaStream& on = device::cuda_stream(stream);
  const bool is_done =
      is_fused(args) && Libraries::of(on.cuda_device()).attention_plans().ranges_backward(on, args);
  if (!is_done) attention_backward(on, problem_of(on, args));
}

}  // namespace trireme::kernels::cuda
