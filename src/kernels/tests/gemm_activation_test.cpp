// SPDX-License-Identifier: Apache-2.0
// Products with fused activations: results have the bits that separate ops compute from the stored
// product, and the stored product is close to that of a plain gemm.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "device/accelerator.h"
#include "kernels/ops.h"
#include "kernels/tests/op_test.h"

namespace trireme::kernels::gemm_activation_test {
namespace {

struct Size {
  int64_t m, F, k;
};

// Compares all elements; bound(y) is the largest difference that is allowed.
template <typename Bound>
void expect_all(const std::vector<double>& x, const std::vector<double>& y, const Bound& bound) {
  ASSERT_EQ(x.size(), y.size());
  const size_t wrong =
      first_wrong(x.size(), [&](size_t i) { return std::abs(x[i] - y[i]) <= bound(y[i]); });
  if (wrong < x.size()) {
    ADD_FAILURE() << "element " << wrong << " is " << x[wrong] << ", expected is " << y[wrong]
                  << " with a difference of at most " << bound(y[wrong]);
  }
}

// Sets each element of `values` to f(i).
template <typename F>
void set_all(std::vector<double>& values, const F& f) {
  over_threads(std::ssize(values), 20, [&](int64_t first, int64_t last) {
    for (auto i = static_cast<size_t>(first); i < static_cast<size_t>(last); ++i) values[i] = f(i);
  });
}

// The derivative of GELU at x in double precision.
double gelu_slope(double x) {
  const double linear = 1.5957691216057308;
  const double s = 1 / (1 + std::exp(-linear * (x + 0.044715 * x * x * x)));
  return s + x * s * (1 - s) * linear * (1 + 3 * 0.044715 * x * x);
}

// Compares two computations of a sum of k products of numbers of size 1: they differ in the order
// of the terms, and each of the `roundings` may give neighbouring bf16 numbers.
void expect_near(const Tensor& found, const Tensor& expected, int64_t k, int roundings) {
  const std::vector<double> x = values_of(found), y = values_of(expected);
  const double step = found.dtype == DType::bf16  ? roundings * 0x1p-7
                      : found.dtype == DType::f16 ? roundings * 0x1p-10
                                                  : 0;
  expect_all(x, y, [&](double value) {
    return step * std::abs(value) + 1e-5 * std::sqrt(static_cast<double>(k));
  });
}

void expect_forward(Machine& machine, const Size& size, DType dtype) {
  const auto [m, F, k] = size;
  SCOPED_TRACE(fmt::format("forward m {} F {} k {} {}", m, F, k, base::name_of(dtype)));
  Operands operands(7, machine);
  const ConstTensor a = operands.input({m, k}, {.dtype = dtype, .gap = 8});
  const ConstTensor b = operands.input({2 * F, k}, {.dtype = dtype, .gap = 16});
  const Tensor gate_up = operands.result({m, 2 * F}, {.dtype = dtype, .gap = 8});
  const Tensor y = operands.result({m, F}, {.dtype = dtype, .gap = 24});
  const Tensor plain = operands.result({m, 2 * F}, {.dtype = dtype});
  const Tensor again = operands.result({m, F}, {.dtype = dtype});
  Stream& stream = *machine.stream;
  ops::gemm_swiglu_forward(stream, {.a = a, .b = b, .d = gate_up, .trans_b = true},
                           {.gate_up = gate_up, .y = y});
  ops::gemm(stream, {.a = a, .b = b, .d = plain, .trans_b = true});
  ops::swiglu_forward(stream, {.gate_up = gate_up, .y = again});
  stream.synchronize();
  operands.expect_intact();
  EXPECT_TRUE(values_of(y) == values_of(again));
  expect_near(gate_up, plain, k, 1);
}

void expect_backward(Machine& machine, const Size& size, DType dtype, bool in_place) {
  const auto [m, F, k] = size;
  SCOPED_TRACE(fmt::format("backward m {} F {} k {} {}{}", m, F, k, base::name_of(dtype),
                           in_place ? " in place" : ""));
  Operands operands(8, machine);
  const ConstTensor a = operands.input({m, k}, {.dtype = dtype, .gap = 16});
  const ConstTensor b = operands.input({k, F}, {.dtype = dtype, .gap = 8});
  const Make make = {.dtype = dtype, .gap = 8};
  const ConstTensor first = operands.input({m, 2 * F}, make);
  const Tensor gate_up = operands.updated({m, 2 * F}, make);
  const Tensor d = in_place ? gate_up : operands.result({m, 2 * F}, {.dtype = dtype, .gap = 16});
  const Tensor y = operands.result({m, F}, make), dy = operands.result({m, F}, make);
  const Tensor plain = operands.result({m, F}, {.dtype = dtype});
  const Tensor d_ops = operands.result({m, 2 * F}, {.dtype = dtype});
  const Tensor y_ops = operands.result({m, F}, {.dtype = dtype});
  Stream& stream = *machine.stream;
  ops::copy(stream, {.x = first, .d = gate_up});
  ops::gemm_swiglu_backward(stream, {.a = a, .b = b, .d = dy},
                            {.gate_up = gate_up, .dy = dy, .dgate_up = d, .y = y});
  ops::gemm(stream, {.a = a, .b = b, .d = plain});
  ops::swiglu_backward(stream, {.gate_up = first, .dy = plain, .dgate_up = d_ops, .y = y_ops});
  stream.synchronize();
  operands.expect_intact();
  EXPECT_TRUE(values_of(y) == values_of(y_ops));
  expect_near(d, d_ops, 64 * k, 2);  // gate and up are below 8
}

void expect_gelu(Machine& machine, const Size& size, bool has_bias) {
  const auto [m, F, k] = size;
  SCOPED_TRACE(fmt::format("gelu m {} F {} k {}{}", m, F, k, has_bias ? " bias" : ""));
  Operands operands(9, machine);
  const ConstTensor a = operands.input({m, k}, {.dtype = DType::bf16, .gap = 8});
  const ConstTensor b = operands.input({F, k}, {.dtype = DType::bf16});
  const ConstTensor bias =
      has_bias ? ConstTensor(operands.input({F}, {.dtype = DType::bf16})) : ConstTensor{};
  const Tensor u = operands.result({m, F}, {.dtype = DType::bf16, .gap = 16});
  const Tensor y = operands.result({m, F}, {.dtype = DType::bf16, .gap = 8});
  const Tensor plain = operands.result({m, F}, {.dtype = DType::bf16});
  const Tensor again = operands.result({m, F}, {.dtype = DType::bf16});
  Stream& stream = *machine.stream;
  ops::gemm(stream, {.a = a, .b = b, .d = y, .trans_b = true, .epilogue = GeluForward{bias, u}});
  ops::gemm(stream, {.a = a, .b = b, .d = plain, .trans_b = true, .epilogue = AddTerms{bias}});
  ops::gelu_forward(stream, {.x = u, .y = again});
  stream.synchronize();
  operands.expect_intact();
  EXPECT_TRUE(values_of(y) == values_of(again));
  expect_near(u, plain, k, 1);
}

// The slope that is stored instead of u is gelu'(u), and d times a factor is as close as a separate
// product.
void expect_gelu_slope(Machine& machine, const Size& size) {
  const auto [m, F, k] = size;
  SCOPED_TRACE(fmt::format("gelu slope m {} F {} k {}", m, F, k));
  Operands operands(12, machine);
  const Make make = {.dtype = DType::bf16, .gap = 8};
  const ConstTensor a = operands.input({m, k}, make), b = operands.input({F, k}, make);
  const ConstTensor bias = operands.input({F}, {.dtype = DType::bf16});
  const Tensor u = operands.result({m, F}, make), y = operands.result({m, F}, make);
  const Tensor slope = operands.result({m, F}, make), same = operands.result({m, F}, make);
  const Tensor plain = operands.result({m, k}, make), d = operands.result({m, k}, make);
  const ConstTensor factor = operands.input({m, k}, make);
  Stream& stream = *machine.stream;
  ops::gemm(stream, {.a = a, .b = b, .d = y, .trans_b = true, .epilogue = GeluForward{bias, u}});
  ops::gemm(
      stream,
      {.a = a, .b = b, .d = same, .trans_b = true, .epilogue = GeluForwardSlope{bias, slope}});
  ops::gemm(stream, {.a = y, .b = b, .d = plain});
  ops::gemm(stream, {.a = y, .b = b, .d = d, .epilogue = ScaleBy{factor}});
  stream.synchronize();
  operands.expect_intact();
  EXPECT_TRUE(values_of(same) == values_of(y));
  std::vector<double> slopes = values_of(u);
  set_all(slopes, [&](size_t i) { return gelu_slope(slopes[i]); });
  expect_all(values_of(slope), slopes,
             [](double value) { return 0x1p-8 * std::abs(value) + 1e-5; });
  std::vector<double> products = values_of(plain);
  const std::vector<double> times = values_of(factor);
  set_all(products, [&](size_t i) { return products[i] * times[i]; });
  expect_all(values_of(d), products, [](double value) { return 0x1p-6 * std::abs(value) + 1e-4; });
}

void expect_gelu_grad(Machine& machine, const Size& size, float x_size) {
  const auto [m, F, k] = size;
  SCOPED_TRACE(fmt::format("gelu gradient m {} F {} k {}, x of {}", m, F, k, x_size));
  Operands operands(11, machine);
  const Make make = {.dtype = DType::bf16, .gap = 8};
  const ConstTensor a = operands.input({m, k}, make), b = operands.input({k, F}, make);
  const ConstTensor x = operands.input({m, F}, {.dtype = DType::bf16, .gap = 8, .size = x_size});
  const Tensor d = operands.result({m, F}, make), plain = operands.result({m, F}, make);
  const Tensor again = operands.result({m, F}, make), activation = operands.result({m, F}, make);
  Stream& stream = *machine.stream;
  ops::gemm(stream, {.a = a, .b = b, .d = d, .epilogue = GeluGradient{.input = x, .gelu = again}});
  ops::gelu_forward(stream, {.x = x, .y = activation});
  ops::gemm(stream, {.a = a, .b = b, .d = plain});
  stream.synchronize();
  operands.expect_intact();
  EXPECT_TRUE(values_of(again) == values_of(activation));
  std::vector<double> products = values_of(plain);
  const std::vector<double> at = values_of(x);
  set_all(products, [&](size_t i) { return products[i] * gelu_slope(at[i]); });
  expect_all(values_of(d), products, [](double value) { return 0x1p-6 * std::abs(value) + 1e-4; });
}

TEST(GemmActivationTest, has_the_bits_of_separate_ops_on_cpu_and_cuda) {
  for_each_machine([](Machine& machine) {
    for (const Size& size : {Size{1, 1, 1}, Size{17, 33, 7}, Size{130, 64, 90}}) {
      for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
        expect_forward(machine, size, dtype);
        expect_backward(machine, size, dtype, false);
        expect_backward(machine, size, dtype, true);
      }
    }
  });
}

// Sizes of the fused kernels on Hopper, none a multiple of their tiles.
void on_gpu(const std::function<void(Machine&)>& body) {
  const device::GpuStatus status = device::gpu_status();
  if (!status.problem.empty()) GTEST_SKIP() << status.problem;
  Machine machine = gpu_machine();
  body(machine);
}

TEST(GemmActivationTest, cuda_large_products_with_swiglu) {
  on_gpu([](Machine& machine) {
    expect_forward(machine, {4100, 2056, 264}, DType::bf16);
    expect_backward(machine, {4100, 4104, 264}, DType::bf16, false);
    expect_backward(machine, {4100, 4104, 328}, DType::bf16, true);
  });
}

TEST(GemmActivationTest, cuda_large_products_with_gelu) {
  on_gpu([](Machine& machine) {
    expect_gelu(machine, {4100, 4104, 264}, true);
    expect_gelu(machine, {4100, 4104, 1000}, false);
    expect_gelu_slope(machine, {4100, 4104, 4104});
  });
}

TEST(GemmActivationTest, cuda_large_products_with_the_gradient_of_gelu) {
  on_gpu([](Machine& machine) {
    for (const float x_size : {1.0F, 30.0F, 1e30F}) {
      expect_gelu_grad(machine, {4100, 4104, 264}, x_size);
    }
    expect_gelu_grad(machine, {8200, 2056, 1000}, 1);
  });
}

TEST(GemmActivationTest, cuda_large_products_are_one_kernel_on_hopper) {
  const device::GpuStatus status = device::gpu_status();
  if (!status.problem.empty()) GTEST_SKIP() << status.problem;
  if (status.gpus.front().major != 9 || status.built_for.find("90a") == std::string::npos) {
    GTEST_SKIP() << "no Hopper GPU, or not built for it";
  }
  Machine machine = gpu_machine();
  Operands operands(10, machine);
  const int64_t m = 4096, F = 4352, k = 256;
  const Make make = {.dtype = DType::bf16};
  const Tensor dy = operands.result({m, F}, make), d = operands.result({m, 2 * F}, make);
  const ConstTensor gate_up = operands.input({m, 2 * F}, make);
  EXPECT_TRUE(machine.device.kernels().gemm_swiglu_backward(
      *machine.stream,
      {.a = operands.input({m, k}, make), .b = operands.input({k, F}, make), .d = dy},
      {.gate_up = gate_up, .dy = dy, .dgate_up = d}));
  machine.stream->synchronize();
  // The product itself is not stored.
  EXPECT_TRUE(std::ranges::all_of(values_of(dy), [](double x) { return std::isnan(x); }));
  EXPECT_TRUE(std::ranges::none_of(values_of(d), [](double x) { return std::isnan(x); }));
}

}  // namespace
}  // namespace trireme::kernels::gemm_activation_test
