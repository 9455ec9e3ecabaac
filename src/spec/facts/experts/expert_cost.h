// SPDX-License-Identifier: Apache-2.0
// The costs of the ops of mixture-of-experts layers (kernels/expert_args.h), computed from shapes:
// one function per op. facts() and kernels/cost.h both call them.
//
// Rows of grouped products are the expected number, since the actual one is on the device only; all
// matrices of a rank's experts count as read once. A gather or a sum of rows reads as many rows as
// it has places for. Tensors that are added to are read and written.
#pragma once

#include <cstdint>

#include "spec/facts/op_cost.h"

namespace trireme::spec {

// A router of `tokens` rows. `sequences` is the number of rows of `load`, 0 if it is absent.
struct RouterShape {
  int64_t tokens = 0, experts = 0, chosen = 0;
  bool has_bias = false, has_stats = false;
  bool has_labels = false;
  int64_t sequences = 0;
};
OpCost router_forward_cost(const RouterShape&);
// `dtype` is the type of dlogits. has_bias and has_stats have no effect.
OpCost router_backward_cost(const RouterShape&, base::DType dtype);
OpCost router_bias_cost(int64_t experts);
OpCost router_overflow_cost(int64_t experts);
OpCost router_fill_cost(int64_t experts);

// `rows` is the number of rows of all blocks.
struct RouteShape {
  int64_t tokens = 0, experts = 0, chosen = 0;
  int64_t rows = 0;
  bool has_stats = false;
};
OpCost route_rows_cost(const RouteShape&);

// `sent` is the number of rows of all blocks, `rows` the number of grouped rows, `groups` the
// number of experts of this rank.
struct ArrangeShape {
  int64_t blocks = 1, groups = 0;
  int64_t sent = 0, rows = 0;
};
OpCost arrange_rows_cost(const ArrangeShape&);

OpCost gather_pairs_cost(int64_t rows, int64_t width, base::DType dtype);

// `terms` is the number of optional terms that are present: residual and other.
struct SumPairsShape {
  int64_t tokens = 0, chosen = 0, width = 0;
  int64_t terms = 0;
};
OpCost sum_pairs_cost(const SumPairsShape&, base::DType dtype);

// The types of a product: that of its operands, and that of its results.
struct ProductTypes {
  base::DType operands, results;
  ProductTypes(base::DType both) : operands(both), results(both) {}  // NOLINT: meant to be implicit
  ProductTypes(base::DType of_operands, base::DType of_results)
      : operands(of_operands), results(of_results) {}
};

// Products of `rows` rows with the matrices [out, in] of `groups` experts. As OpCost: m is rows; n
// and k are the columns of the result and the inner size, for weight gradients `out` and `in`. In 8
// bits both operands run along the inner index, as in GemmLayout::nt.
struct GroupedShape {
  int64_t rows = 0, groups = 0;
  int64_t out = 0, in = 0;
};
OpCost grouped_forward_cost(const GroupedShape&, const ProductTypes&);
OpCost grouped_backward_input_cost(const GroupedShape&, const ProductTypes&);
// `dtype` is the type of dy and x, `grad` the type of dweight.
OpCost grouped_backward_weight_cost(const GroupedShape&, base::DType dtype, base::DType grad,
                                    bool adds);

// Experts of width D whose feed-forward has width F.
struct GroupedSwigluShape {
  int64_t rows = 0, groups = 0;
  int64_t D = 0, F = 0;
};
OpCost grouped_swiglu_forward_cost(const GroupedSwigluShape&, const ProductTypes&);
OpCost grouped_swiglu_cost(int64_t rows, int64_t F, base::DType dtype);
OpCost grouped_swiglu_backward_cost(const GroupedSwigluShape&, const ProductTypes&, bool has_act);

}  // namespace trireme::spec
