// SPDX-License-Identifier: Apache-2.0
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <cmath>

#include "kernels/ops.h"
#include "kernels/tests/op_test.h"

namespace trireme::kernels::rope_test {
namespace {

constexpr int64_t position_count = 40;

// cos or sin of position p for frequency 100^(-2 i / K).
double table_value(int64_t p, int64_t c, int64_t head_size) {
  const int64_t i = c % (head_size / 2);
  const double frequency =
      std::pow(100.0, -2.0 * static_cast<double>(i) / static_cast<double>(head_size));
  const double angle = static_cast<double>(p) * frequency;
  return c < head_size / 2 ? std::cos(angle) : std::sin(angle);
}

std::vector<int32_t> positions_of(int64_t tokens) {
  std::vector<int32_t> positions;
  for (int64_t t = 0; t < tokens; ++t) {
    positions.push_back(static_cast<int32_t>((t * 7) % position_count));
  }
  return positions;
}

struct Problem {
  int64_t tokens, q_heads, k_heads, head_size;
  DType dtype, grad_dtype;
  bool with_weights, in_place;
};

Tensor make_table(Operands& operands, int64_t head_size) {
  return operands.input({position_count, head_size}, {.gap = 2},
                        [=](int64_t p, int64_t c) { return table_value(p, c, head_size); });
}

// Heads are a view of a wider row, as in a fused projection.
Make heads_make(const Problem& p) {
  return {.dtype = p.dtype, .gap = p.k_heads * p.head_size, .terms = p.head_size};
}

void forward(const Problem& p, Operands& operands, Stream& stream) {
  const Shape shape = {p.tokens, p.q_heads + p.k_heads, p.head_size};
  const Make make = heads_make(p);
  RopeForwardArgs args;
  args.y = p.in_place ? operands.updated(shape, make) : operands.result(shape, make);
  args.x = p.in_place ? args.y : operands.input(shape, make);
  args.positions = operands.integers(positions_of(p.tokens));
  args.table = make_table(operands, p.head_size);
  args.q_heads = p.q_heads;
  if (p.with_weights) {
    args.q_weight = operands.input({p.head_size}, {.dtype = p.dtype});
    args.k_weight = operands.input({p.head_size}, {.dtype = p.dtype});
    args.rstd = operands.result({p.tokens, shape[1]}, {.gap = 1, .terms = p.head_size});
  }
  ops::rope_forward(stream, args);
}

void backward(const Problem& p, Operands& operands, Stream& stream) {
  const Shape shape = {p.tokens, p.q_heads + p.k_heads, p.head_size};
  Make make = heads_make(p);
  // As in norm_test: the gradient of a small head after the projection may be zero.
  if (p.with_weights && p.head_size < 8) make.floor = 100;
  RopeBackwardArgs args;
  args.dx = p.in_place ? operands.updated(shape, make) : operands.result(shape, make);
  args.dy = p.in_place ? args.dx : operands.input(shape, make);
  args.positions = operands.integers(positions_of(p.tokens));
  args.table = make_table(operands, p.head_size);
  args.q_heads = p.q_heads;
  if (p.with_weights) {
    const Make grad = {.dtype = p.grad_dtype, .terms = p.tokens * shape[1]};
    args.x = operands.input(shape, {.dtype = p.dtype});
    args.q_weight = operands.input({p.head_size}, {.dtype = p.dtype});
    args.k_weight = operands.input({p.head_size}, {.dtype = p.dtype});
    const Tensor rstd = operands.input({p.tokens, shape[1]}, {.gap = 1});
    const Tensor y = operands.scratch(shape, p.dtype);
    operands.prepare([&](Stream& reference) {
      ops::rope_forward(reference, {.x = args.x,
                                    .y = y,
                                    .positions = args.positions,
                                    .table = args.table,
                                    .q_heads = p.q_heads,
                                    .q_weight = args.q_weight,
                                    .k_weight = args.k_weight,
                                    .rstd = rstd});
    });
    args.rstd = rstd;
    args.dq_weight = operands.updated({p.head_size}, grad);
    args.dk_weight = operands.updated({p.head_size}, grad);
    args.partials = operands.scratch({norm_partials(p.tokens), 2 * p.head_size}, DType::f32);
  }
  ops::rope_backward(stream, args);
}

std::vector<Case> cases(void (*row)(const Problem&, Operands&, Stream&),
                        const std::vector<int64_t>& token_counts = {1, 3, 33, 130},
                        const std::vector<int64_t>& head_sizes = {2, 6, 16, 64}) {
  const std::pair<int64_t, int64_t> head_counts[] = {{1, 1}, {4, 2}, {3, 1}, {2, 2}};
  std::vector<Case> list;
  for (const int64_t tokens : token_counts) {
    for (const int64_t head_size : head_sizes) {
      for (int variant = 0; variant < 20; ++variant) {
        const bool is_f16 = variant >= 16;
        const auto [q_heads, k_heads] = head_counts[(tokens + variant / 4) % 4];
        const Problem p = {tokens,
                           q_heads,
                           k_heads,
                           head_size,
                           is_f16               ? DType::f16
                           : (variant & 1) != 0 ? DType::bf16
                                                : DType::f32,
                           !is_f16 && (variant & 2) != 0 ? DType::bf16 : DType::f32,
                           (variant & (is_f16 ? 1 : 4)) != 0,
                           (variant & (is_f16 ? 2 : 8)) != 0};
        list.push_back({fmt::format("tokens {} heads {}+{} of {} variant {}", tokens, q_heads,
                                    k_heads, head_size, variant),
                        [=](Operands& o, Stream& s) { row(p, o, s); }});
      }
    }
  }
  return list;
}

TEST(RopeTest, cpu_forward_agrees_with_the_reference) { expect_cpu_agrees(cases(forward)); }

TEST(RopeTest, cpu_backward_agrees_with_the_reference) { expect_cpu_agrees(cases(backward)); }

TEST(RopeTest, cuda_forward_agrees_with_the_reference) {
  expect_cuda_agrees(cases(forward));
  expect_cuda_agrees(cases(forward, {301}, {64, 96, 128, 256}));
}

TEST(RopeTest, cuda_backward_agrees_with_the_reference) {
  expect_cuda_agrees(cases(backward));
  expect_cuda_agrees(cases(backward, {301}, {64, 96, 128, 256}));
}

TEST(RopeTest, bits_do_not_depend_on_threads) {
  expect_bits_do_not_depend_on_threads(cases(forward));
  expect_bits_do_not_depend_on_threads(cases(backward));
}

TEST(RopeTest, everything_has_the_gradient_of_finite_differences) {
  constexpr int64_t T = 3, H = 2, G = 1, K = 6;
  Machine machine(reference_kernels());
  const Kernels& rows = machine.device.kernels();
  Operands indices(1);
  const Tensor positions = indices.integers({3, 0, 11});
  Reals table({position_count, K});
  for (int64_t i = 0; i < position_count * K; ++i) {
    table.values[static_cast<size_t>(i)] = table_value(i / K, i % K, K);
  }
  for (const bool with_weights : {false, true}) {
    SCOPED_TRACE(with_weights ? "with q and k norm" : "rotation only");
    Reals x({T, H + G, K}, 1), q_weight({K}, 2), k_weight({K}, 3), weights({T, H + G, K}, 4);
    Reals y({T, H + G, K}), rstd({T, H + G});
    RopeForwardArgs args{
        .x = x.tensor, .y = y.tensor, .positions = positions, .table = table.tensor, .q_heads = H};
    RopeBackwardArgs back{.dy = weights.tensor,
                          .dx = {},
                          .positions = positions,
                          .table = table.tensor,
                          .q_heads = H};
    Reals dx({T, H + G, K}), dq_weight({K}), dk_weight({K}), partials({1, 2 * K});
    back.dx = dx.tensor;
    if (with_weights) {
      args.q_weight = back.q_weight = q_weight.tensor;
      args.k_weight = back.k_weight = k_weight.tensor;
      args.rstd = rstd.tensor;
      back.rstd = rstd.tensor;
      back.x = x.tensor;
      back.dq_weight = dq_weight.tensor;
      back.dk_weight = dk_weight.tensor;
      back.partials = partials.tensor;
    }
    const auto loss = [&] {
      rows.rope_forward(*machine.stream, args);
      return inner(weights, y);
    };
    loss();
    rows.rope_backward(*machine.stream, back);
    expect_gradient("x", x, dx, loss);
    if (with_weights) {
      expect_gradient("q_weight", q_weight, dq_weight, loss);
      expect_gradient("k_weight", k_weight, dk_weight, loss);
    }
  }
}

TEST(RopeTest, scores_depend_on_the_distance_of_positions_only) {
  constexpr int64_t K = 16;
  for_each_table([](Stream& stream) {
    Operands operands(1);
    const Tensor head = operands.input({1, 2, K});
    const Tensor table = make_table(operands, K);
    const auto score = [&](int32_t query_at, int32_t key_at) {
      const Tensor y = operands.result({2, 2, K}), x = operands.updated({2, 2, K});
      for (int64_t t = 0; t < 2; ++t) {  // the same q and k at both positions
        std::copy_n(head.data, head.bytes(), x.data + t * head.bytes());
      }
      const Tensor positions = operands.integers({query_at, key_at});
      ops::rope_forward(stream,
                        {.x = x, .y = y, .positions = positions, .table = table, .q_heads = 1});
      const std::vector<double> rotated = values_of(y);
      double sum = 0;
      for (size_t i = 0; i < K; ++i) sum += rotated[i] * rotated[3 * K + i];
      return sum;
    };
    // Sixteen products of rotated values of size one, each rounded a few times to fp32.
    EXPECT_NEAR(score(5, 2), score(25, 22), 1e-5);
    EXPECT_NEAR(score(5, 2), score(39, 36), 1e-5);
    EXPECT_GT(std::abs(score(5, 2) - score(6, 2)), 1e-3);
  });
}

}  // namespace
}  // namespace trireme::kernels::rope_test
