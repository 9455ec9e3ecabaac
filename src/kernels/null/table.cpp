// SPDX-License-Identifier: Apache-2.0
// The table whose ops do nothing. The functions of ops.h still check arguments and count costs,
// which dry runs and the audit use.
#include "kernels/table.h"

namespace trireme::kernels {
namespace {

template <typename Args>
void nothing(Stream& /*stream*/, const Args& /*args*/) {}

}  // namespace

const Kernels& null_kernels() {
  static constexpr Kernels table = {
      .gemm = nothing,
      .embedding_forward = nothing,
      .embedding_backward = nothing,
      .norm_forward = nothing,
      .norm_backward = nothing,
      .rope_forward = nothing,
      .rope_backward = nothing,
      .attention_forward = nothing,
      .attention_backward = nothing,
      .attention_ranges_forward = nothing,
      .attention_ranges_backward = nothing,
      .attention_merge = nothing,
      .gather_rows = nothing,
      .row_product = nothing,
      .scatter_rows = nothing,
      .attention_cached = nothing,
      .swiglu_forward = nothing,
      .swiglu_backward = nothing,
      .gelu_forward = nothing,
      .clamp = nothing,
      .cross_entropy_stats = nothing,
      .cross_entropy_grad = nothing,
      .cross_entropy_merge = nothing,
      .cross_entropy = nothing,
      .fill = nothing,
      .copy = nothing,
      .accumulate = nothing,
      .init_normal = nothing,
      .sum_squares = nothing,
      .add_layers = nothing,
      .merge_sums = nothing,
      .merge_records = nothing,
      .step_control = nothing,
      .gate = nothing,
      .adamw = nothing,
      .momentum = nothing,
      .normalize = nothing,
      .muon = nothing,
      .router_forward = nothing,
      .router_backward = nothing,
      .router_bias = nothing,
      .router_overflow = nothing,
      .router_fill = nothing,
      .route_rows = nothing,
      .arrange_rows = nothing,
      .gather_pairs = nothing,
      .sum_pairs = nothing,
      .grouped_forward = nothing,
      .grouped_swiglu_forward = nothing,
      .grouped_swiglu = nothing,
      .grouped_backward_input = nothing,
      .grouped_swiglu_backward = nothing,
      .grouped_backward_weight = nothing,
      .amax = nothing,
      .quantize = nothing,
      .weight_amax = nothing,
      .weight_quantize = nothing,
      .transpose = nothing,
      .collect_amax = nothing,
      .rotate_amax = nothing,
      .content_sum = nothing,
  };
  return table;
}

}  // namespace trireme::kernels
