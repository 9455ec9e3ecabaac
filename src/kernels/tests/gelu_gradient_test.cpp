// SPDX-License-Identifier: Apache-2.0
// What GeluGradient and ScaleBy write besides d: d_sum grows by the sums of d as stored, and
// GeluGradient::gelu has the bits of gelu_forward. (d itself: gemm_test.cpp.)
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "device/accelerator.h"
#include "kernels/ops.h"
#include "kernels/tests/op_test.h"

namespace trireme::kernels::gelu_gradient_test {
namespace {

struct Size {
  int64_t m, n, k;
};
struct Problem {
  Size size;
  DType in, out, sum;
  bool in_place;
  bool by_factor = false;  // not by GELU's gradient
};

void expect_right(const Problem& p, Machine& machine) {
  const auto [m, n, k] = p.size;
  SCOPED_TRACE(fmt::format("m {} n {} k {} {} -> {} sum {}{}", m, n, k, base::name_of(p.in),
                           base::name_of(p.out), base::name_of(p.sum),
                           p.in_place ? " in place" : "") +
               (p.by_factor ? " by a factor" : ""));
  Operands operands(static_cast<uint64_t>(n), machine);
  const Make make = {.dtype = p.out, .gap = n % 4};
  const Tensor d = p.in_place ? operands.updated({m, n}, make) : operands.result({m, n}, make);
  const Tensor d_sum = operands.updated({n}, {.dtype = p.sum});
  const Tensor expected = operands.result({m, n}, {.dtype = p.out});
  const Tensor again = operands.result({m, n}, {.dtype = p.out, .gap = 3 * (n % 2)});
  const ConstTensor u = p.in_place ? d : operands.input({m, n}, make);
  const std::vector<double> old = values_of(d_sum);
  ops::gelu_forward(*machine.stream, {.x = u, .y = expected});
  GemmArgs args = {.a = operands.input({m, k}, {.dtype = p.in}),
                   .b = operands.input({k, n}, {.dtype = p.in}),
                   .d = d,
                   .epilogue = GeluGradient{.input = u, .d_sum = d_sum, .gelu = again}};
  if (p.by_factor) args.epilogue = ScaleBy{.factor = u, .d_sum = d_sum};
  ops::gemm(*machine.stream, args);
  machine.stream->synchronize();
  operands.expect_intact();
  if (!p.by_factor) {
    EXPECT_TRUE(values_of(again) == values_of(expected));
  }
  const std::vector<double> stored = values_of(d), found = values_of(d_sum);
  for (size_t c = 0; c < old.size(); ++c) {
    double sum = old[c], size = std::abs(old[c]);
    for (size_t i = c; i < stored.size(); i += old.size()) {
      sum += stored[i];
      size += std::abs(stored[i]);
    }
    // fp32 sums, and one rounding of a bf16 result.
    const double rounding = p.sum == DType::bf16 ? 0x1p-8 * std::abs(sum) : 0;
    EXPECT_NEAR(found[c], sum, 1e-6 * size + rounding) << "column " << c;
  }
}

TEST(GeluGradientTest, sums_d_as_stored_and_gives_the_bits_of_gelu_on_cpu_and_cuda) {
  for_each_machine([](Machine& machine) {
    for (const Size& size :
         {Size{1, 1, 1}, Size{17, 33, 7}, Size{129, 65, 90}, Size{300, 64, 80}}) {
      for (int variant = 0; variant < 16; ++variant) {
        const auto type = [variant](int bit) {
          return (variant & bit) != 0 ? DType::bf16 : DType::f32;
        };
        for (const bool by_factor : {false, true}) {
          expect_right({size, type(1), type(2), type(4), (variant & 8) != 0, by_factor}, machine);
        }
      }
    }
  });
}

// A size at which the gradient is the library's epilogue.
TEST(GeluGradientTest, cuda_sums_d_as_stored_at_a_measured_size) {
  const std::string problem = device::gpu_status().problem;
  if (!problem.empty()) GTEST_SKIP() << problem;
  Machine machine = gpu_machine();
  for (const DType sum : {DType::f32, DType::bf16}) {
    expect_right({{528, 512, 2000}, DType::bf16, DType::bf16, sum, false}, machine);
    expect_right({{528, 512, 2000}, DType::bf16, DType::bf16, sum, false, true}, machine);
  }
}

// Sizes at which it is a fused product on Hopper.
TEST(GeluGradientTest, cuda_large_products) {
  const std::string problem = device::gpu_status().problem;
  if (!problem.empty()) GTEST_SKIP() << problem;
  Machine machine = gpu_machine();
  for (const bool in_place : {false, true}) {
    for (const bool by_factor : {false, true}) {
      expect_right({{4104, 4104, 264}, DType::bf16, DType::bf16, DType::f32, in_place, by_factor},
                   machine);
    }
  }
  expect_right({{4100, 4360, 328}, DType::bf16, DType::bf16, DType::bf16, false, true}, machine);
  expect_right({{4100, 4360, 328}, DType::bf16, DType::bf16, DType::bf16, false}, machine);
}

}  // namespace
}  // namespace trireme::kernels::gelu_gradient_test
