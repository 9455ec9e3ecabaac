// SPDX-License-Identifier: Apache-2.0
// The cost that every op of experts reports, by hand from its operands.
#include <gtest/gtest.h>

#include <vector>

#include "kernels/ops.h"
#include "kernels/tests/op_test.h"

namespace trireme::kernels::experts_cost_test {
namespace {

using spec::GemmLayout;
using spec::OpCost;
using spec::OpKind;

class Costs : public OpObserver {
 public:
  void op(const Stream& /*stream*/, const OpCost& cost) override { list.push_back(cost); }
  std::vector<OpCost> list;
};

TEST(ExpertsCostTest, costs_count_rows_matrices_and_what_is_added_to) {
  constexpr int64_t T = 10, E = 6, K = 2, D = 16, F = 24, R = 40, rows = 20, S = 3;
  constexpr int64_t stats_bytes = 4 * (2 * E + 8);
  Machine machine(null_kernels());
  Costs costs;
  machine.stream->set_observer(&costs);
  Stream& stream = *machine.stream;
  Operands o(1, machine);
  const auto f32 = [&](const Shape& shape) { return o.scratch(shape, DType::f32); };
  const auto bf16 = [&](const Shape& shape) { return o.scratch(shape, DType::bf16); };
  const auto i32 = [&](const Shape& shape) { return o.scratch(shape, DType::i32); };
  const spec::RouterSpec rule = {.experts = E, .chosen = K, .has_bias = true};
  const spec::RouterSpec plain = {.experts = E, .chosen = K};
  std::vector<OpCost> expected;

  ops::router_forward(stream, {.rule = rule,
                               .logits = f32({T, E}),
                               .bias = f32({E}),
                               .choice = i32({T, K}),
                               .weights = f32({T, K}),
                               .stats = f32({2 * E + 8}),
                               .load = f32({S, E}),
                               .sequence_rows = 4});
  expected.push_back({.kind = OpKind::router_forward,
                      .m = T,
                      .n = E,
                      .bytes = 4 * (T * E + E + 2 * T * K + S * E) + 2 * stats_bytes});
  ops::router_forward(
      stream,
      {.rule = plain, .logits = f32({T, E}), .choice = i32({T, K}), .weights = f32({T, K})});
  expected.push_back(
      {.kind = OpKind::router_forward, .m = T, .n = E, .bytes = 4 * (T * E + 2 * T * K)});
  ops::router_backward(stream, {.rule = plain,
                                .logits = f32({T, E}),
                                .choice = i32({T, K}),
                                .place = i32({T, K}),
                                .row_grads = f32({R}),
                                .load = f32({S, E}),
                                .labels = i32({T}),
                                .sequence_rows = 4,
                                .aux_scale = 1,
                                .dlogits = bf16({T, E})});
  expected.push_back({.kind = OpKind::router_backward,
                      .m = T,
                      .n = E,
                      .dtype = DType::bf16,
                      .bytes = 4 * (T * E + 3 * T * K + S * E + T) + 2 * T * E});
  ops::router_bias(stream, {.stats = f32({2 * E + 8}), .state = o.state({}), .bias = f32({E})});
  expected.push_back({.kind = OpKind::router_bias,
                      .m = E,
                      .n = 1,
                      .bytes = stats_bytes + static_cast<int64_t>(sizeof(StepState)) + 8 * E});
  ops::route_rows(stream, {.choice = i32({T, K}),
                           .experts = E,
                           .blocks = 2,
                           .place = i32({T, K}),
                           .pair = i32({R}),
                           .counts = i32({E}),
                           .starts = i32({E + 1}),
                           .stats = f32({2 * E + 8})});
  expected.push_back({.kind = OpKind::route_rows,
                      .m = T,
                      .n = K,
                      .dtype = DType::i32,
                      .bytes = 4 * (2 * T * K + R + E + E + 1) + 2 * stats_bytes});
  ops::arrange_rows(stream, {.counts = i32({2, 3}),
                             .tile = 4,
                             .place = i32({30}),
                             .source = i32({R}),
                             .starts = i32({4})});
  expected.push_back({.kind = OpKind::arrange_rows,
                      .m = 30,
                      .n = 1,
                      .dtype = DType::i32,
                      .bytes = 4 * (6 + 30 + R + 4)});
  ops::gather_pairs(stream,
                    {.x = bf16({T, D}), .source = i32({R}), .divisor = K, .d = bf16({R, D})});
  expected.push_back({.kind = OpKind::gather_pairs,
                      .m = R,
                      .n = D,
                      .dtype = DType::bf16,
                      .bytes = 2 * (2 * R * D) + 4 * R});
  ops::sum_pairs(stream, {.rows = bf16({R, D}),
                          .place = i32({T, K}),
                          .residual = bf16({T, D}),
                          .other = bf16({T, D}),
                          .y = bf16({T, D})});
  expected.push_back({.kind = OpKind::sum_pairs,
                      .m = T,
                      .n = D,
                      .dtype = DType::bf16,
                      .bytes = 2 * (T * K * D + 3 * T * D) + 4 * T * K});

  const Tensor starts = i32({E + 1});
  ops::grouped_forward(stream, {.x = bf16({R, F}),
                                .weight = bf16({E, D, F}),
                                .starts = starts,
                                .y = bf16({R, D}),
                                .rows = rows});
  expected.push_back({OpKind::grouped_forward, rows, D, F, GemmLayout::nt, DType::bf16,
                      2.0 * rows * D * F, 2 * (rows * (D + F) + E * D * F)});
  ops::grouped_swiglu_forward(stream, {.x = bf16({R, D}),
                                       .weight = bf16({E, 2 * F, D}),
                                       .starts = starts,
                                       .row_weight = f32({R}),
                                       .gate_up = bf16({R, 2 * F}),
                                       .act = bf16({R, F}),
                                       .rows = rows});
  expected.push_back({OpKind::grouped_swiglu_forward, rows, 2 * F, D, GemmLayout::nt, DType::bf16,
                      4.0 * rows * D * F, 2 * (rows * (D + 3 * F) + 2 * E * D * F) + 4 * rows});
  ops::grouped_swiglu(stream, {.gate_up = f32({R, 2 * F}),
                               .row_weight = f32({R}),
                               .end = i32({1}),
                               .act = f32({R, F}),
                               .rows = rows});
  expected.push_back(
      {.kind = OpKind::grouped_swiglu, .m = rows, .n = F, .bytes = 4 * rows * (3 * F + 1)});
  ops::grouped_backward_input(stream, {.dy = bf16({R, D}),
                                       .weight = bf16({E, D, F}),
                                       .starts = starts,
                                       .dx = bf16({R, F}),
                                       .rows = rows});
  expected.push_back({OpKind::grouped_backward_input, rows, F, D, GemmLayout::nn, DType::bf16,
                      2.0 * rows * D * F, 2 * (rows * (D + F) + E * D * F)});
  for (const bool has_act : {false, true}) {
    ops::grouped_swiglu_backward(stream, {.dy = bf16({R, D}),
                                          .weight = bf16({E, D, F}),
                                          .starts = starts,
                                          .gate_up = bf16({R, 2 * F}),
                                          .row_weight = f32({R}),
                                          .dgate_up = bf16({R, 2 * F}),
                                          .dweight = f32({R}),
                                          .act = has_act ? bf16({R, F}) : Tensor{},
                                          .rows = rows});
    expected.push_back({OpKind::grouped_swiglu_backward, rows, F, D, GemmLayout::nn, DType::bf16,
                        2.0 * rows * D * F,
                        2 * (rows * (D + (has_act ? 5 : 4) * F) + E * D * F) + 8 * rows});
    ops::grouped_backward_weight(stream, {.dy = bf16({R, D}),
                                          .x = bf16({R, F}),
                                          .starts = starts,
                                          .dweight = f32({E, D, F}),
                                          .adds = has_act,
                                          .rows = rows});
    expected.push_back({OpKind::grouped_backward_weight, rows, D, F, GemmLayout::tn, DType::bf16,
                        2.0 * rows * D * F,
                        2 * rows * (D + F) + 4 * (has_act ? 2 : 1) * E * D * F});
  }

  // In 8 bits codes have one byte, results two, and both operands run along the inner index.
  const auto codes = [&](const Shape& shape) { return o.scratch(shape, DType::f8e4m3); };
  const GroupedScales of_rows = {.a = f32({1}), .b = f32({E})};
  ops::grouped_forward(stream, {.x = codes({R, F}),
                                .weight = codes({E, D, F}),
                                .starts = starts,
                                .y = bf16({R, D}),
                                .rows = rows,
                                .scales = of_rows});
  expected.push_back({OpKind::grouped_forward, rows, D, F, GemmLayout::nt, DType::f8e4m3,
                      2.0 * rows * D * F, rows * F + E * D * F + 2 * rows * D});
  ops::grouped_backward_input(stream, {.dy = codes({R, D}),
                                       .weight = codes({E, F, D}),
                                       .starts = starts,
                                       .dx = bf16({R, F}),
                                       .rows = rows,
                                       .scales = of_rows});
  expected.push_back({OpKind::grouped_backward_input, rows, F, D, GemmLayout::nt, DType::f8e4m3,
                      2.0 * rows * D * F, rows * D + E * D * F + 2 * rows * F});
  ops::grouped_backward_weight(stream, {.dy = codes({D, R}),
                                        .x = codes({F, R}),
                                        .starts = starts,
                                        .dweight = f32({E, D, F}),
                                        .rows = rows,
                                        .scales = {.a = f32({1}), .b = f32({1})}});
  expected.push_back({OpKind::grouped_backward_weight, rows, D, F, GemmLayout::nt, DType::f8e4m3,
                      2.0 * rows * D * F, rows * (D + F) + 4 * E * D * F});

  machine.stream->set_observer(nullptr);
  ASSERT_EQ(costs.list.size(), expected.size());
  for (size_t i = 0; i < expected.size(); ++i) {
    EXPECT_EQ(to_string(costs.list[i]), to_string(expected[i]));
    EXPECT_EQ(costs.list[i], expected[i]);
  }
}

}  // namespace
}  // namespace trireme::kernels::experts_cost_test
