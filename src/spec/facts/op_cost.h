// SPDX-License-Identifier: Apache-2.0
// OpCost: the cost of one executed operation. facts() computes it from the model's dimensions, the
// functions of kernels/ops.h from their tensors; the audit test compares the two, op by op.
//
// Conventions. FLOPs count matrix work only (GEMM 2 m n k; attention 2 per multiply-add over the
// unmasked pairs); everything else is priced by bytes. Bytes are compulsory traffic: each operand
// is read once, each result written once, a result that is accumulated into is also read.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "base/shape.h"

namespace trireme::spec {

enum class OpKind : uint8_t {
  gemm,
  embedding_forward,
  embedding_backward,
  norm_forward,
  norm_backward,
  rope_forward,
  rope_backward,
  attention_forward,
  attention_backward,
  attention_ranges_forward,
  attention_ranges_backward,
  attention_merge,
  gather_rows,
  row_product,
  scatter_rows,
  attention_cached,
  swiglu_forward,
  swiglu_backward,
  gelu_forward,
  clamp,
  cross_entropy_stats,
  cross_entropy_grad,
  cross_entropy_merge,
  cross_entropy,
  fill,
  copy,
  accumulate,
  init_normal,
  sum_squares,
  add_layers,
  merge_sums,
  merge_records,
  step_control,
  gate,
  adamw,
  momentum,
  normalize,
  muon,
  router_forward,
  router_backward,
  router_bias,
  router_overflow,
  router_fill,
  route_rows,
  arrange_rows,
  gather_pairs,
  sum_pairs,
  grouped_forward,
  grouped_swiglu_forward,
  grouped_swiglu,
  grouped_backward_input,
  grouped_swiglu_backward,
  grouped_backward_weight,
  amax,
  quantize,
  weight_amax,
  weight_quantize,
  transpose,
  collect_amax,
  rotate_amax,
  content_sum,
};

enum class GemmLayout : uint8_t { none, nn, nt, tn, tt };  // of a GEMM: is a, is b transposed

struct OpCost {
  OpKind kind = OpKind::gemm;
  int64_t m = 0, n = 0, k = 0;  // GEMM: m, n, k; attention: tokens, sequence length, head size;
                                // attention of ranges: query rows, keys, head size; other ops: rows
                                // and row width
  GemmLayout layout = GemmLayout::none;
  base::DType dtype = base::DType::f32;  // of the main operand
  double flops = 0;
  int64_t bytes = 0;

  bool operator==(const OpCost&) const = default;
};

std::string_view name_of(OpKind);  // a literal, so a zero byte follows it
std::string to_string(const OpCost&);

// Returns the pairs (query, key) of causal attention in `sequences` sequences of `length` tokens
// each.
constexpr double causal_pairs(int64_t sequences, int64_t length) {
  return static_cast<double>(sequences) * static_cast<double>(length) *
         static_cast<double>(length + 1) / 2;
}

}  // namespace trireme::spec
