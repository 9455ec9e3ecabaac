// SPDX-License-Identifier: Apache-2.0
// The ops of attention: for bf16, common head sizes and aligned memory cuDNN, or on Hopper
// FlashAttention; otherwise Trireme's portable kernels. These also compute short documents, ranges
// that only the device knows, and the deterministic backward of documents, for which cuDNN wants
// the square of the longest length for every possible document.
#include "kernels/cuda/attention/attention_flash.h"
#include "kernels/cuda/attention/attention_problem.h"
#include "kernels/cuda/cudnn/attention_plans.h"
#include "kernels/cuda/libraries.h"
#include "kernels/cuda/table_ops.h"
#include "spec/facts/backend.h"

namespace trireme::kernels::cuda {

namespace {

AttentionPlans& plans_of(device::CudaStream& stream) {
  return Libraries::of(stream.cuda_device()).attention_plans();
}

}  // namespace

void attention_forward(Stream& stream, const AttentionForwardArgs& args) {
  device::CudaStream& on = device::cuda_stream(stream);
  if (is_fused(on.cuda_device(), args) && plans_of(on).forward(on, args)) return;
  if (are_fused_documents(args) && plans_of(on).documents_forward(on, args)) return;
  attention_forward(on, problem_of(on, args, no_fused_length));
}

void attention_backward(Stream& stream, const AttentionBackwardArgs& args) {
  device::CudaStream& on = device::cuda_stream(stream);
  const bool deterministic = on.cuda_device().options().deterministic;
  if (is_fused(on.cuda_device(), args)) {
    const FlashAttention& flash = Libraries::of(on.cuda_device()).flash_attention();
    if (spec::may_be_flash(deterministic, args.q.shape[2], args.max_seq) &&
        flash.backward(on, args)) {
      return;
    }
    if (plans_of(on).backward(on, args)) return;
  }
  if (!deterministic && are_fused_documents(args) && plans_of(on).documents_backward(on, args)) {
    return;
  }
  attention_backward(on, problem_of(on, args, no_fused_length));
}

void attention_ranges_forward(Stream& stream, const AttentionRangesForwardArgs& args) {
  if (args.q.rows() == 0) return;
  device::CudaStream& on = device::cuda_stream(stream);
  if (is_fused(args) && plans_of(on).ranges_forward(on, args)) return;
  attention_forward(on, problem_of(on, args));
}

void attention_ranges_backward(Stream& stream, const AttentionRangesBackwardArgs& args) {
  device::CudaStream& on = device::cuda_stream(stream);
  if (is_fused(args) && plans_of(on).ranges_backward(on, args)) return;
  attention_backward(on, problem_of(on, args));
}

}  // namespace trireme::kernels::cuda
