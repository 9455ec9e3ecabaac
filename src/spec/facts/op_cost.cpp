// SPDX-License-Identifier: Apache-2.0
#include "spec/facts/op_cost.h"

#include <array>

#include "base/check.h"

namespace trireme::spec {

std::string_view name_of(OpKind kind) {
  static constexpr std::array<std::string_view, 61> names = {"gemm",
                                                      "embedding_forward",
                                                      "embedding_backward",
                                                      "norm_forward",
                                                      "norm_backward",
                                                      "rope_forward",
                                                      "rope_backward",
                                                      "attention_forward",
                                                      "attention_backward",
                                                      "attention_ranges_forward",
                                                      "attention_ranges_backward",
                                                      "attention_merge",
                                                      "gather_rows",
                                                      "row_product",
                                                      "scatter_rows",
                                                      "attention_cached",
                                                      "swiglu_forward",
                                                      "swiglu_backward",
                                                      "gelu_forward",
                                                      "clamp",
                                                      "cross_entropy_stats",
                                                      "cross_entropy_grad",
                                                      "cross_entropy_merge",
                                                      "cross_entropy",
                                                      "fill",
                                                      "copy",
                                                      "accumulate",
                                                      "init_normal",
                                                      "sum_squares",
                                                      "add_layers",
                                                      "merge_sums",
                                                      "merge_records",
                                                      "step_control",
                                                      "gate",
                                                      "adamw",
                                                      "momentum",
                                                      "normalize",
                                                      "muon",
                                                      "router_forward",
                                                      "router_backward",
                                                      "router_bias",
                                                      "router_overflow",
                                                      "router_fill",
                                                      "route_rows",
                                                      "arrange_rows",
                                                      "gather_pairs",
                                                      "sum_pairs",
                                                      "grouped_forward",
                                                      "grouped_swiglu_forward",
                                                      "grouped_swiglu",
                                                      "grouped_backward_input",
                                                      "grouped_swiglu_backward",
                                                      "grouped_backward_weight",
                                                      "amax",
                                                      "quantize",
                                                      "weight_amax",
                                                      "weight_quantize",
                                                      "transpose",
                                                      "collect_amax",
                                                      "rotate_amax",
                                                      "content_sum"};
  const auto index = static_cast<size_t>(kind);
  TRIREME_CHECK(index < names.size(), "op kind {}", index);
  return names[index];
}

std::string to_string(const OpCost& cost) {
  constexpr std::array<std::string_view, 5> layouts = {"-", "nn", "nt", "tn", "tt"};
  return fmt::format("{} m={} n={} k={} {} {} flops={:.0f} bytes={}", name_of(cost.kind), cost.m,
                     cost.n, cost.k, layouts[static_cast<size_t>(cost.layout)],
                     base::name_of(cost.dtype), cost.flops, cost.bytes);
}

}  // namespace trireme::spec
