// SPDX-License-Identifier: Apache-2.0
#include "kernels/table.h"

#include "kernels/cuda/table_ops.h"

namespace trireme::kernels {
const Kernels& cuda_kernels() {
  static constexpr Kernels table = {
      .gemm = cuda::gemm,
      .embedding_forward = cuda::embedding_forward,
      .embedding_backward = cuda::embedding_backward,
      .norm_forward = cuda::norm_forward,
      .norm_backward = cuda::norm_backward,
      .rope_forward = cuda::rope_forward,
      .rope_backward = cuda::rope_backward,
      .attention_forward = cuda::attention_forward,
      .attention_backward = cuda::attention_backward,
      .attention_ranges_forward = cuda::attention_ranges_forward,
      .attention_ranges_backward = cuda::attention_ranges_backward,
      .attention_merge = cuda::attention_merge,
      .gather_rows = cuda::gather_rows,
      .row_product = cuda::row_product,
      .scatter_rows = cuda::scatter_rows,
      .attention_cached = cuda::attention_cached,
      .swiglu_forward = cuda::swiglu_forward,
      .swiglu_backward = cuda::swiglu_backward,
      .gelu_forward = cuda::gelu_forward,
      .clamp = cuda::clamp,
      .cross_entropy_stats = cuda::cross_entropy_stats,
      .cross_entropy_grad = cuda::cross_entropy_grad,
      .cross_entropy_merge = cuda::cross_entropy_merge,
      .cross_entropy = cuda::cross_entropy,
      .fill = cuda::fill,
      .copy = cuda::copy,
      .accumulate = cuda::accumulate,
      .init_normal = cuda::init_normal,
      .sum_squares = cuda::sum_squares,
      .add_layers = cuda::add_layers,
      .merge_sums = cuda::merge_sums,
      .merge_records = cuda::merge_records,
      .step_control = cuda::step_control,
      .adamw = cuda::adamw,
      .momentum = cuda::momentum,
      .normalize = cuda::normalize,
      .muon = cuda::muon,
      .router_forward = cuda::router_forward,
      .router_backward = cuda::router_backward,
      .router_bias = cuda::router_bias,
      .router_overflow = cuda::router_overflow,
      .router_fill = cuda::router_fill,
      .route_rows = cuda::route_rows,
      .arrange_rows = cuda::arrange_rows,
      .gather_pairs = cuda::gather_pairs,
      .sum_pairs = cuda::sum_pairs,
      .grouped_forward = cuda::grouped_forward,
      .grouped_swiglu_forward = cuda::grouped_swiglu_forward,
      .grouped_swiglu = cuda::grouped_swiglu,
      .grouped_backward_input = cuda::grouped_backward_input,
      .grouped_swiglu_backward = cuda::grouped_swiglu_backward,
      .grouped_backward_weight = cuda::grouped_backward_weight,
      .gemm_swiglu_forward = cuda::gemm_swiglu_forward,
      .gemm_swiglu_backward = cuda::gemm_swiglu_backward,
  };
  return table;
}

}  // namespace trireme::kernels
