// SPDX-License-Identifier: Apache-2.0
#include "spec/facts/experts/expert_cost.h"

#include "spec/experts/router.h"
#include "spec/facts/op_shapes.h"

namespace trireme::spec {
namespace {

constexpr int64_t word_bytes = 4;  // of f32 and i32

int64_t stats_bytes(int64_t experts) { return RouterStats{experts}.size() * word_bytes; }

struct Product {
  OpKind kind;
  int64_t m, n, k;
  GemmLayout layout;
};

OpCost product_cost(const Product& p, base::DType dtype, int64_t bytes) {
  const double flops =
      2.0 * static_cast<double>(p.m) * static_cast<double>(p.n) * static_cast<double>(p.k);
  const GemmLayout layout = base::is_float8(dtype) ? GemmLayout::nt : p.layout;
  return {p.kind, p.m, p.n, p.k, layout, dtype, flops, bytes};
}

}  // namespace

OpCost router_forward_cost(const RouterShape& s) {
  int64_t bytes = (s.tokens * (s.experts + 2 * s.chosen) + s.sequences * s.experts) * word_bytes;
  if (s.has_bias) bytes += s.experts * word_bytes;
  if (s.has_stats) bytes += 2 * stats_bytes(s.experts);
  return {.kind = OpKind::router_forward, .m = s.tokens, .n = s.experts, .bytes = bytes};
}

OpCost router_backward_cost(const RouterShape& s, base::DType dtype) {
  // Logits, then choice, place and one gradient per pair, then load, then dlogits.
  const int64_t words =
      s.tokens * (s.experts + 3 * s.chosen + (s.has_labels ? 1 : 0)) + s.sequences * s.experts;
  return {.kind = OpKind::router_backward,
          .m = s.tokens,
          .n = s.experts,
          .dtype = dtype,
          .bytes = words * word_bytes + s.tokens * s.experts * base::size_of(dtype)};
}

OpCost router_bias_cost(int64_t experts) {
  return {.kind = OpKind::router_bias,
          .m = experts,
          .n = 1,
          .bytes = stats_bytes(experts) + step_state_bytes + 2 * experts * word_bytes};
}

OpCost router_overflow_cost(int64_t experts) {
  return {.kind = OpKind::router_overflow,
          .m = experts,
          .n = 1,
          .bytes = stats_bytes(experts) + 2 * step_sums_bytes};
}

OpCost router_fill_cost(int64_t experts) {
  return {.kind = OpKind::router_fill,
          .m = experts,
          .n = 1,
          .dtype = base::DType::i32,
          .bytes = experts * word_bytes + 2 * word_bytes};
}

OpCost route_rows_cost(const RouteShape& s) {
  const int64_t words = 2 * s.tokens * s.chosen + s.rows + 2 * s.experts + 1;
  return {.kind = OpKind::route_rows,
          .m = s.tokens,
          .n = s.chosen,
          .dtype = base::DType::i32,
          .bytes = words * word_bytes + (s.has_stats ? 2 * stats_bytes(s.experts) : 0)};
}

OpCost arrange_rows_cost(const ArrangeShape& s) {
  return {.kind = OpKind::arrange_rows,
          .m = s.sent,
          .n = 1,
          .dtype = base::DType::i32,
          .bytes = (s.blocks * s.groups + s.sent + s.rows + s.groups + 1) * word_bytes};
}

OpCost gather_pairs_cost(int64_t rows, int64_t width, base::DType dtype) {
  return {.kind = OpKind::gather_pairs,
          .m = rows,
          .n = width,
          .dtype = dtype,
          .bytes = 2 * rows * width * base::size_of(dtype) + rows * word_bytes};
}

OpCost sum_pairs_cost(const SumPairsShape& s, base::DType dtype) {
  return {.kind = OpKind::sum_pairs,
          .m = s.tokens,
          .n = s.width,
          .dtype = dtype,
          .bytes = s.tokens * (s.chosen + s.terms + 1) * s.width * base::size_of(dtype) +
                   s.tokens * s.chosen * word_bytes};
}

OpCost grouped_forward_cost(const GroupedShape& s, const ProductTypes& types) {
  const int64_t bytes = (s.rows * s.in + s.groups * s.out * s.in) * base::size_of(types.operands) +
                        s.rows * s.out * base::size_of(types.results);
  return product_cost({OpKind::grouped_forward, s.rows, s.out, s.in, GemmLayout::nt},
                      types.operands, bytes);
}

OpCost grouped_backward_input_cost(const GroupedShape& s, const ProductTypes& types) {
  const int64_t bytes = (s.rows * s.out + s.groups * s.out * s.in) * base::size_of(types.operands) +
                        s.rows * s.in * base::size_of(types.results);
  return product_cost({OpKind::grouped_backward_input, s.rows, s.in, s.out, GemmLayout::nn},
                      types.operands, bytes);
}

OpCost grouped_backward_weight_cost(const GroupedShape& s, base::DType dtype, base::DType grad,
                                    bool adds) {
  const int64_t gradients = s.groups * s.out * s.in * base::size_of(grad);
  return product_cost({OpKind::grouped_backward_weight, s.rows, s.out, s.in, GemmLayout::tn}, dtype,
                      s.rows * (s.in + s.out) * base::size_of(dtype) + (adds ? 2 : 1) * gradients);
}

OpCost grouped_swiglu_forward_cost(const GroupedSwigluShape& s, const ProductTypes& types) {
  const int64_t bytes = (s.rows * s.D + s.groups * 2 * s.F * s.D) * base::size_of(types.operands) +
                        s.rows * 3 * s.F * base::size_of(types.results) + s.rows * word_bytes;
  return product_cost({OpKind::grouped_swiglu_forward, s.rows, 2 * s.F, s.D, GemmLayout::nt},
                      types.operands, bytes);
}

OpCost grouped_swiglu_cost(int64_t rows, int64_t F, base::DType dtype) {
  return {.kind = OpKind::grouped_swiglu,
          .m = rows,
          .n = F,
          .dtype = dtype,
          .bytes = rows * (3 * F * base::size_of(dtype) + word_bytes)};
}

OpCost grouped_swiglu_backward_cost(const GroupedSwigluShape& s, const ProductTypes& types,
                                    bool has_act) {
  const int64_t bytes = (s.rows * s.D + s.groups * s.D * s.F) * base::size_of(types.operands) +
                        s.rows * (has_act ? 5 : 4) * s.F * base::size_of(types.results) +
                        2 * s.rows * word_bytes;
  return product_cost({OpKind::grouped_swiglu_backward, s.rows, s.F, s.D, GemmLayout::nn},
                      types.operands, bytes);
}

}  // namespace trireme::spec
