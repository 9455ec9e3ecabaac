// SPDX-License-Identifier: Apache-2.0
#include "kernels/table.h"

#include "kernels/reference/table_ops.h"

namespace trireme::kernels {

const Kernels& reference_kernels() {
  static constexpr Kernels table = {
      .gemm = reference::gemm,
      .embedding_forward = reference::embedding_forward,
      .embedding_backward = reference::embedding_backward,
      .norm_forward = reference::norm_forward,
      .norm_backward = reference::norm_backward,
      .rope_forward = reference::rope_forward,
      .rope_backward = reference::rope_backward,
      .attention_forward = reference::attention_forward,
      .attention_backward = reference::attention_backward,
      .attention_ranges_forward = reference::attention_ranges_forward,
      .attention_ranges_backward = reference::attention_ranges_backward,
      .attention_merge = reference::attention_merge,
      .gather_rows = reference::gather_rows,
      .row_product = reference::row_product,
      .scatter_rows = reference::scatter_rows,
      .attention_cached = reference::attention_cached,
      .swiglu_forward = reference::swiglu_forward,
      .swiglu_backward = reference::swiglu_backward,
      .gelu_forward = reference::gelu_forward,
      .clamp = reference::clamp,
      .cross_entropy_stats = reference::cross_entropy_stats,
      .cross_entropy_grad = reference::cross_entropy_grad,
      .cross_entropy_merge = reference::cross_entropy_merge,
      .cross_entropy = reference::cross_entropy,
      .fill = reference::fill,
      .copy = reference::copy,
      .accumulate = reference::accumulate,
      .init_normal = reference::init_normal,
      .sum_squares = reference::sum_squares,
      .add_layers = reference::add_layers,
      .merge_sums = reference::merge_sums,
      .merge_records = reference::merge_records,
      .step_control = reference::step_control,
      .gate = reference::gate,
      .adamw = reference::adamw,
      .momentum = reference::momentum,
      .normalize = reference::normalize,
      .muon = reference::muon,
      .router_forward = reference::router_forward,
      .router_backward = reference::router_backward,
      .router_bias = reference::router_bias,
      .router_overflow = reference::router_overflow,
      .router_fill = reference::router_fill,
      .route_rows = reference::route_rows,
      .arrange_rows = reference::arrange_rows,
      .gather_pairs = reference::gather_pairs,
      .sum_pairs = reference::sum_pairs,
      .grouped_forward = reference::grouped_forward,
      .grouped_swiglu_forward = reference::grouped_swiglu_forward,
      .grouped_swiglu = reference::grouped_swiglu,
      .grouped_backward_input = reference::grouped_backward_input,
      .grouped_swiglu_backward = reference::grouped_swiglu_backward,
      .grouped_backward_weight = reference::grouped_backward_weight,
      .amax = reference::amax,
      .quantize = reference::quantize,
      .weight_amax = reference::weight_amax,
      .weight_quantize = reference::weight_quantize,
      .transpose = reference::transpose,
      .collect_amax = reference::collect_amax,
      .rotate_amax = reference::rotate_amax,
  };
  return table;
}

}  // namespace trireme::kernels
