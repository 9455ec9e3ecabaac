// SPDX-License-Identifier: Apache-2.0
// The costs of the ops of mixture-of-experts layers, by the functions that facts() calls, too.
#include "spec/facts/experts/expert_cost.h"

#include "kernels/cost.h"

namespace trireme::kernels {

using spec::OpCost;

OpCost cost_of(const RouterForwardArgs& a) {
  return spec::router_forward_cost({.tokens = a.logits.rows(),
                                    .experts = a.rule.experts,
                                    .chosen = a.rule.chosen,
                                    .has_bias = static_cast<bool>(a.bias),
                                    .has_stats = static_cast<bool>(a.stats),
                                    .sequences = a.load ? a.load.rows() : 0});
}

OpCost cost_of(const RouterBackwardArgs& a) {
  return spec::router_backward_cost({.tokens = a.logits.rows(),
                                     .experts = a.rule.experts,
                                     .chosen = a.rule.chosen,
                                     .has_labels = static_cast<bool>(a.labels),
                                     .sequences = a.load ? a.load.rows() : 0},
                                    a.dlogits.dtype);
}

OpCost cost_of(const RouterBiasArgs& a) { return spec::router_bias_cost(a.bias.rows()); }

OpCost cost_of(const RouterOverflowArgs& a) { return spec::router_overflow_cost(a.experts); }
OpCost cost_of(const RouterFillArgs& a) { return spec::router_fill_cost(a.counts.rows()); }

OpCost cost_of(const RouteRowsArgs& a) {
  return spec::route_rows_cost({.tokens = a.choice.rows(),
                                .experts = a.experts,
                                .chosen = a.choice.cols(),
                                .rows = a.pair.rows(),
                                .has_stats = static_cast<bool>(a.stats)});
}

OpCost cost_of(const ArrangeRowsArgs& a) {
  return spec::arrange_rows_cost({.blocks = a.counts.rows(),
                                  .groups = a.counts.cols(),
                                  .sent = a.place.rows(),
                                  .rows = a.source.rows()});
}

OpCost cost_of(const GatherPairsArgs& a) {
  return spec::gather_pairs_cost(a.d.rows(), a.d.cols(), a.d.dtype);
}

OpCost cost_of(const SumPairsArgs& a) {
  return spec::sum_pairs_cost({.tokens = a.y.rows(),
                               .chosen = a.place.cols(),
                               .width = a.y.cols(),
                               .terms = (a.residual ? 1 : 0) + (a.other ? 1 : 0)},
                              a.y.dtype);
}

OpCost cost_of(const GroupedForwardArgs& a) {
  const base::Shape& weight = a.weight.shape;
  return spec::grouped_forward_cost(
      {.rows = a.rows, .groups = weight[0], .out = weight[1], .in = weight[2]},
      {a.x.dtype, a.y.dtype});
}

OpCost cost_of(const GroupedSwigluForwardArgs& a) {
  const base::Shape& weight = a.weight.shape;
  return spec::grouped_swiglu_forward_cost(
      {.rows = a.rows, .groups = weight[0], .D = weight[2], .F = weight[1] / 2},
      {a.x.dtype, a.act.dtype});
}

OpCost cost_of(const GroupedSwigluArgs& a) {
  return spec::grouped_swiglu_cost(a.rows, a.act.cols(), a.act.dtype);
}

OpCost cost_of(const GroupedBackwardInputArgs& a) {
  return spec::grouped_backward_input_cost(
      {.rows = a.rows, .groups = a.weight.shape[0], .out = a.dy.cols(), .in = a.dx.cols()},
      {a.dy.dtype, a.dx.dtype});
}

OpCost cost_of(const GroupedSwigluBackwardArgs& a) {
  return spec::grouped_swiglu_backward_cost(
      {.rows = a.rows, .groups = a.weight.shape[0], .D = a.dy.cols(), .F = a.gate_up.cols() / 2},
      {a.dy.dtype, a.dgate_up.dtype}, static_cast<bool>(a.act));
}

OpCost cost_of(const GroupedBackwardWeightArgs& a) {
  const base::Shape& weight = a.dweight.shape;
  return spec::grouped_backward_weight_cost(
      {.rows = a.rows, .groups = weight[0], .out = weight[1], .in = weight[2]}, a.dy.dtype,
      a.dweight.dtype, a.adds);
}

}  // namespace trireme::kernels
