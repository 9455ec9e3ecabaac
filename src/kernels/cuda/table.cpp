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
      .merge_sums = cuda::merge_sums,
      .step_control = cuda::step_control,
      .adamw = cuda::adamw,
      .momentum = cuda::momentum,
      .normalize = cuda::normalize,
      .muon = cuda::muon,
      .gemm_swiglu_forward = cuda::gemm_swiglu_forward,
      .gemm_swiglu_backward = cuda::gemm_swiglu_backward,
  };
  return table;
}

}  // namespace trireme::kernels
