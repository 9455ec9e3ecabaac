// SPDX-License-Identifier: Apache-2.0
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>

#include "kernels/ops.h"
#include "kernels/tests/op_test.h"

namespace trireme::kernels::elementwise_test {
namespace {

struct Problem {
  int64_t rows, width;
  Make make;
  bool in_place;
};

void swiglu_forward(const Problem& p, Operands& operands, Stream& stream) {
  const Tensor gate_up = operands.input({p.rows, 2 * p.width}, p.make);
  const Tensor y = operands.result({p.rows, p.width}, p.make);
  ops::swiglu_forward(stream, {.gate_up = gate_up, .y = y});
}

void swiglu_backward(const Problem& p, Operands& operands, Stream& stream) {
  const Shape wide = {p.rows, 2 * p.width};
  const Tensor dy = operands.input({p.rows, p.width}, p.make);
  const Tensor d = p.in_place ? operands.updated(wide, p.make) : operands.result(wide, p.make);
  const Tensor gate_up = p.in_place ? d : operands.input(wide, p.make);
  ops::swiglu_backward(stream, {.gate_up = gate_up, .dy = dy, .dgate_up = d});
}

void swiglu_backward_with_result(const Problem& p, Operands& operands, Stream& stream) {
  const Shape wide = {p.rows, 2 * p.width};
  const Tensor dy = operands.input({p.rows, p.width}, p.make);
  const Tensor d = p.in_place ? operands.updated(wide, p.make) : operands.result(wide, p.make);
  const Tensor gate_up = p.in_place ? d : operands.input(wide, p.make);
  const Tensor y = operands.result({p.rows, p.width}, p.make);
  ops::swiglu_backward(stream, {.gate_up = gate_up, .dy = dy, .dgate_up = d, .y = y});
}

void gelu_forward(const Problem& p, Operands& operands, Stream& stream) {
  const Tensor x = operands.input({p.rows, p.width}, p.make);
  const Tensor y = operands.result({p.rows, p.width}, p.make);
  ops::gelu_forward(stream, {.x = x, .y = y});
}

void clamp(const Problem& p, Operands& operands, Stream& stream) {
  const Shape shape = {p.rows, p.width};
  const Tensor y = p.in_place ? operands.updated(shape, p.make) : operands.result(shape, p.make);
  const Tensor x = p.in_place ? y : operands.input(shape, p.make);
  ops::clamp(stream, {.x = x, .limit = 0.75F, .y = y});
}

void clamp_gradient(const Problem& p, Operands& operands, Stream& stream) {
  const Shape shape = {p.rows, p.width};
  const Tensor x = operands.input(shape, p.make);
  Make make = p.make;
  make.gap = p.rows % 3;
  const Tensor y = p.in_place ? operands.updated(shape, make) : operands.result(shape, make);
  const Tensor dy = p.in_place ? y : operands.input(shape, make);
  ops::clamp(stream, {.x = x, .dy = dy, .limit = 0.75F, .y = y});
}

std::vector<Case> cases(void (*row)(const Problem&, Operands&, Stream&),
                        const std::vector<int64_t>& row_counts = {1, 3, 33, 129},
                        const std::vector<int64_t>& widths = {1, 7, 65, 200}) {
  std::vector<Case> list;
  for (const int64_t rows : row_counts) {
    for (const int64_t width : widths) {
      for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
        for (const bool in_place : {false, true}) {
          // Standard deviation 8 reaches the tails, where the activations saturate.
          const float size = width == 65 ? 8.0F : 1.0F;
          const Problem p = {
              rows, width, {.dtype = dtype, .gap = rows % 4, .size = size}, in_place};
          list.push_back({fmt::format("{} x {} {}{}", rows, width, base::name_of(dtype),
                                      in_place ? " in place" : ""),
                          [=](Operands& o, Stream& s) { row(p, o, s); }});
        }
      }
    }
  }
  return list;
}

TEST(ElementwiseTest, cpu_agrees_with_the_reference) {
  expect_cpu_agrees(cases(swiglu_forward));
  expect_cpu_agrees(cases(swiglu_backward));
  expect_cpu_agrees(cases(swiglu_backward_with_result));
  expect_cpu_agrees(cases(gelu_forward));
  expect_cpu_agrees(cases(clamp));
  expect_cpu_agrees(cases(clamp_gradient));
}

TEST(ElementwiseTest, cuda_agrees_with_the_reference) {
  for (auto* row : {swiglu_forward, swiglu_backward, swiglu_backward_with_result, gelu_forward,
                    clamp, clamp_gradient}) {
    expect_cuda_agrees(cases(row));
    expect_cuda_agrees(cases(row, {64, 65}, {8, 1024, 3072, 4100}));
  }
}

TEST(ElementwiseTest, bits_do_not_depend_on_threads) {
  expect_bits_do_not_depend_on_threads(cases(swiglu_forward));
  expect_bits_do_not_depend_on_threads(cases(swiglu_backward));
  expect_bits_do_not_depend_on_threads(cases(swiglu_backward_with_result));
  expect_bits_do_not_depend_on_threads(cases(gelu_forward));
}

// The gradient passes at the limits themselves, as in PyTorch.
TEST(ElementwiseTest, clamp_limits_values_and_their_gradients) {
  for_each_machine([](Machine& machine) {
    for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
      Operands operands(1, machine);
      const Tensor x = operands.input({1, 5}, {.dtype = dtype}, [](int64_t, int64_t c) {
        return std::array{-3.0, -2.0, 0.5, 2.0, 3.0}[static_cast<size_t>(c)];
      });
      const Tensor dy = operands.input(
          {1, 5}, {.dtype = dtype}, [](int64_t, int64_t c) { return static_cast<double>(c + 1); });
      const Tensor y = operands.result({1, 5}, {.dtype = dtype});
      const Tensor dx = operands.result({1, 5}, {.dtype = dtype});
      ops::clamp(*machine.stream, {.x = x, .limit = 2, .y = y});
      ops::clamp(*machine.stream, {.x = x, .dy = dy, .limit = 2, .y = dx});
      machine.stream->synchronize();
      EXPECT_EQ(values_of(y), (std::vector<double>{-2, -2, 0.5, 2, 2}));
      EXPECT_EQ(values_of(dx), (std::vector<double>{0, 2, 3, 4, 0}));
    }
  });
}

// In place, with other strides than in the forward.
TEST(ElementwiseTest, swiglu_backward_recomputes_the_bits_of_the_forward) {
  for_each_machine([](Machine& machine) {
    for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
      for (const int64_t width : {1, 65, 200, 1024}) {
        SCOPED_TRACE(fmt::format("{} {}", base::name_of(dtype), width));
        Operands operands(static_cast<uint64_t>(width), machine);
        const Make make = {.dtype = dtype, .size = 3};
        const Tensor gate_up = operands.updated({37, 2 * width}, make);
        const Tensor dy = operands.input({37, width}, make);
        const Tensor y = operands.result({37, width}, make);
        const Tensor again = operands.result({37, width}, {.dtype = dtype, .gap = width % 3});
        ops::swiglu_forward(*machine.stream, {.gate_up = gate_up, .y = y});
        ops::swiglu_backward(*machine.stream,
                             {.gate_up = gate_up, .dy = dy, .dgate_up = gate_up, .y = again});
        machine.stream->synchronize();
        EXPECT_TRUE(values_of(y) == values_of(again));
      }
    }
  });
}

TEST(ElementwiseTest, swiglu_has_the_gradient_of_finite_differences) {
  constexpr int64_t T = 4, F = 5;
  Machine machine(reference_kernels());
  Reals gate_up({T, 2 * F}, 1), y({T, F}), weights({T, F}, 2), dgate_up({T, 2 * F});
  const auto loss = [&] {
    machine.device.kernels().swiglu_forward(*machine.stream,
                                            {.gate_up = gate_up.tensor, .y = y.tensor});
    return inner(weights, y);
  };
  machine.device.kernels().swiglu_backward(
      *machine.stream,
      {.gate_up = gate_up.tensor, .dy = weights.tensor, .dgate_up = dgate_up.tensor});
  expect_gradient("gate_up", gate_up, dgate_up, loss);
}

// The derivative is computed by a product with the unit matrix: d = 1 * gelu'(x).
TEST(ElementwiseTest, gelu_has_the_gradient_of_finite_differences) {
  constexpr int64_t T = 4, F = 5;
  Machine machine(reference_kernels());
  Reals x({T, F}, 1), y({T, F}), weights({T, F}, 2), dx({T, F}), one({F, F});
  for (int64_t i = 0; i < F; ++i) one.values[static_cast<size_t>(i * F + i)] = 1;
  const auto loss = [&] {
    machine.device.kernels().gelu_forward(*machine.stream, {.x = x.tensor, .y = y.tensor});
    return inner(weights, y);
  };
  machine.device.kernels().gemm(
      *machine.stream,
      {.a = weights.tensor, .b = one.tensor, .d = dx.tensor, .epilogue = GeluGradient{x.tensor}});
  expect_gradient("x", x, dx, loss);
}

TEST(ElementwiseTest, large_inputs_saturate_and_stay_finite) {
  const std::vector<double> points = {-1e30, -300, -100, -30, 30, 100, 300, 1e30};
  for_each_table([&](Stream& stream) {
    Operands operands(1);
    const auto value = [&](int64_t, int64_t c) { return points[static_cast<size_t>(c % 8)]; };
    const Tensor x = operands.input({1, 8}, {}, value), y = operands.result({1, 8});
    ops::gelu_forward(stream, {.x = x, .y = y});
    const Tensor gate_up =
        operands.input({1, 16}, {}, [&](int64_t r, int64_t c) { return c < 8 ? value(r, c) : 1; });
    const Tensor swiglu = operands.result({1, 8}), dgate_up = operands.result({1, 16});
    const Tensor dy = operands.input({1, 8}, {}, [](int64_t, int64_t) { return 1; });
    ops::swiglu_forward(stream, {.gate_up = gate_up, .y = swiglu});
    ops::swiglu_backward(stream, {.gate_up = gate_up, .dy = dy, .dgate_up = dgate_up});
    for (size_t i = 0; i < 8; ++i) {
      const double in = values_of(x)[i], out = in > 0 ? in : 0;
      // silu(-30) = -2.8e-12 is the largest deviation from the asymptote, and an exponential may
      // stop at 1e-38, the smallest of fp32, before it is multiplied by the input.
      const double near = 1e-11 + 1e-6 * out + 1e-37 * std::abs(in);
      EXPECT_NEAR(values_of(y)[i], out, near) << "gelu of " << in;
      EXPECT_NEAR(values_of(swiglu)[i], out, near) << "silu of " << in;
      EXPECT_NEAR(values_of(dgate_up)[i], in > 0 ? 1 : 0, 1e-6) << "silu' of " << in;
      EXPECT_NEAR(values_of(dgate_up)[8 + i], out, near) << "silu of " << in;
    }
  });
}

}  // namespace
}  // namespace trireme::kernels::elementwise_test
