// SPDX-License-Identifier: Apache-2.0
#include "kernels/table.h"

#include "kernels/cpu/table_ops.h"

namespace trireme::kernels {

const Kernels& cpu_kernels() {
  static constexpr Kernels table = {
      .gemm = cpu::gemm,
      .embedding_forward = cpu::embedding_forward,
      .embedding_backward = cpu::embedding_backward,
      .norm_forward = cpu::norm_forward,
      .norm_backward = cpu::norm_backward,
      .rope_forward = cpu::rope_forward,
      .rope_backward = cpu::rope_backward,
      .attention_forward = cpu::attention_forward,
      .attention_backward = cpu::attention_backward,
      .attention_ranges_forward = cpu::attention_ranges_forward,
      .attention_ranges_backward = cpu::attention_ranges_backward,
      .attention_merge = cpu::attention_merge,
      .gather_rows = cpu::gather_rows,
      .row_product = cpu::row_product,
      .scatter_rows = cpu::scatter_rows,
      .attention_cached = cpu::attention_cached,
      .swiglu_forward = cpu::swiglu_forward,
      .swiglu_backward = cpu::swiglu_backward,
      .gelu_forward = cpu::gelu_forward,
      .clamp = cpu::clamp,
      .cross_entropy_stats = cpu::cross_entropy_stats,
      .cross_entropy_grad = cpu::cross_entropy_grad,
      .cross_entropy_merge = cpu::cross_entropy_merge,
      .cross_entropy = cpu::cross_entropy,
      .fill = cpu::fill,
      .copy = cpu::copy,
      .accumulate = cpu::accumulate,
      .init_normal = cpu::init_normal,
      .sum_squares = cpu::sum_squares,
      .add_layers = cpu::add_layers,
      .merge_sums = cpu::merge_sums,
      .merge_records = cpu::merge_records,
      .step_control = cpu::step_control,
      .gate = cpu::gate,
      .adamw = cpu::adamw,
      .momentum = cpu::momentum,
      .normalize = cpu::normalize,
      .muon = cpu::muon,
      .router_forward = cpu::router_forward,
      .router_backward = cpu::router_backward,
      .router_bias = cpu::router_bias,
      .router_overflow = cpu::router_overflow,
      .router_fill = cpu::router_fill,
      .route_rows = cpu::route_rows,
      .arrange_rows = cpu::arrange_rows,
      .gather_pairs = cpu::gather_pairs,
      .sum_pairs = cpu::sum_pairs,
      .grouped_forward = cpu::grouped_forward,
      .grouped_swiglu_forward = cpu::grouped_swiglu_forward,
      .grouped_swiglu = cpu::grouped_swiglu,
      .grouped_backward_input = cpu::grouped_backward_input,
      .grouped_swiglu_backward = cpu::grouped_swiglu_backward,
      .grouped_backward_weight = cpu::grouped_backward_weight,
      .amax = cpu::amax,
      .quantize = cpu::quantize,
      .weight_amax = cpu::weight_amax,
      .weight_quantize = cpu::weight_quantize,
      .transpose = cpu::transpose,
      .collect_amax = cpu::collect_amax,
      .rotate_amax = cpu::rotate_amax,
  };
  return table;
}

}  // namespace trireme::kernels
