// SPDX-License-Identifier: Apache-2.0
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <limits>
#include <tuple>

#include "kernels/ops.h"
#include "kernels/tests/op_test.h"

namespace trireme::kernels::gemm_test {
namespace {

struct Size {
  int64_t m, n, k;
};
struct Types {
  DType in, out;
};
enum class Variant : uint8_t {
  none,
  bias,
  bias_and_residual,
  residual_in_place,
  beta,
  alpha_and_beta,
  bias_and_gelu,
  bias_and_gelu_slope,
  gelu_grad,
  gelu_grad_in_place,
  gelu_grad_and_more,  // with d_sum and gelu
  scale,
  scale_in_place,
  bias_gradient,
  bias_gradient_bf16,
  bias_gradient_and_beta,
  count
};

struct Problem {
  Size size;
  Types types;
  bool trans_a, trans_b;
  Variant variant;
};

void run(const Problem& p, Operands& operands, Stream& stream) {
  const auto [m, n, k] = p.size;
  const Make in = {.dtype = p.types.in, .gap = m % 3}, out = {.dtype = p.types.out, .gap = n % 4};
  Make d_make = {.dtype = p.types.out, .gap = k % 5, .terms = k};
  GemmArgs args;
  args.trans_a = p.trans_a;
  args.trans_b = p.trans_b;
  args.a = operands.input(p.trans_a ? Shape{k, m} : Shape{m, k}, in);
  args.b = operands.input(p.trans_b ? Shape{n, k} : Shape{k, n}, in);
  const auto bias = [&] { return operands.input({n}, {.dtype = p.types.out}); };
  const auto beside_d = [&] {
    return operands.result({m, n}, {.dtype = p.types.out, .gap = 1, .terms = k});
  };
  bool d_is_read = false;
  switch (p.variant) {
    case Variant::none:
      args.alpha = 0.5F;
      break;
    case Variant::bias_and_residual: {
      const Tensor residual = operands.input({m, n}, out);
      args.epilogue = AddTerms{.bias = bias(), .residual = residual};
      break;
    }
    case Variant::bias:
      args.epilogue = AddTerms{.bias = bias()};
      break;
    case Variant::beta:
      args.beta = 1;
      d_is_read = true;
      break;
    case Variant::alpha_and_beta:
      args.alpha = -0.5F;
      args.beta = 0.25F;
      d_is_read = true;
      break;
    case Variant::bias_and_gelu:
      args.epilogue = GeluForward{.bias = bias(), .input = beside_d()};
      break;
    case Variant::bias_and_gelu_slope:
      args.epilogue = GeluForwardSlope{.bias = bias(), .slope = beside_d()};
      break;
    case Variant::scale:
      args.epilogue = ScaleBy{.factor = operands.input({m, n}, out)};
      break;
    case Variant::gelu_grad_and_more: {
      // Sums d as stored; if d is close to the reference, so is the sum.
      const Tensor d_sum = operands.updated(
          {n}, {.dtype = p.types.in == DType::f16 ? DType::f32 : p.types.in, .terms = m * k});
      const Tensor gelu = operands.result({m, n}, {.dtype = p.types.out, .gap = 2});
      args.epilogue =
          GeluGradient{.input = operands.input({m, n}, out), .d_sum = d_sum, .gelu = gelu};
      break;
    }
    case Variant::gelu_grad:
      args.epilogue = GeluGradient{.input = operands.input({m, n}, out)};
      break;
    case Variant::residual_in_place:
    case Variant::gelu_grad_in_place:
    case Variant::scale_in_place:
      d_is_read = true;
      break;
    case Variant::bias_gradient:
      args.epilogue = BiasGradient{operands.updated({m}, {.terms = k})};
      break;
    case Variant::bias_gradient_and_beta:
      args.epilogue = BiasGradient{operands.updated({m}, {.terms = k})};
      args.beta = 1;
      d_is_read = true;
      break;
    case Variant::bias_gradient_bf16:
      args.epilogue = BiasGradient{operands.updated({m}, {.dtype = DType::bf16, .terms = k})};
      break;
    case Variant::count:
      break;
  }
  args.d = d_is_read ? operands.updated({m, n}, d_make) : operands.result({m, n}, d_make);
  if (p.variant == Variant::residual_in_place) args.epilogue = AddTerms{.residual = args.d};
  if (p.variant == Variant::gelu_grad_in_place) args.epilogue = GeluGradient{.input = args.d};
  if (p.variant == Variant::scale_in_place) args.epilogue = ScaleBy{.factor = args.d};
  ops::gemm(stream, args);
}

std::vector<Case> cases(const std::vector<Size>& sizes) {
  const Types all_types[] = {{DType::f32, DType::f32},  {DType::bf16, DType::bf16},
                             {DType::bf16, DType::f32}, {DType::f32, DType::bf16},
                             {DType::f16, DType::f16},  {DType::f16, DType::f32}};
  std::vector<Case> list;
  for (const Size& size : sizes) {
    for (const Types& types : all_types) {
      for (int e = 0; e < static_cast<int>(Variant::count); ++e) {
        // Sums of values that may each be rounded either way: see gelu_gradient_test.cpp.
        if (static_cast<Variant>(e) == Variant::gelu_grad_and_more && types.out != DType::f32) {
          continue;
        }
        if (static_cast<Variant>(e) == Variant::bias_gradient_bf16 && types.in == DType::f16) {
          continue;
        }
        for (int trans = 0; trans < 4; ++trans) {
          const Problem p = {size, types, (trans & 1) != 0, (trans & 2) != 0,
                             static_cast<Variant>(e)};
          list.push_back(
              {fmt::format("m {} n {} k {} {} -> {} trans {} epilogue {}", size.m, size.n, size.k,
                           base::name_of(types.in), base::name_of(types.out), trans, e),
               [p](Operands& o, Stream& s) { run(p, o, s); }});
        }
      }
    }
  }
  return list;
}

TEST(GemmTest, cpu_agrees_with_the_reference) {
  expect_cpu_agrees(cases({{1, 1, 1}, {1, 7, 3}, {2, 1, 17}, {17, 33, 7}, {65, 3, 34}}));
}

TEST(GemmTest, cpu_agrees_with_the_reference_on_larger_sizes) {
  std::vector<Case> list;
  for (const Variant variant : {Variant::none, Variant::bias_and_gelu, Variant::bias_gradient}) {
    for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
      const Problem p = {
          {129, 65, 200}, {dtype, dtype}, variant == Variant::bias_gradient, true, variant};
      list.push_back({"129 x 65 x 200", [p](Operands& o, Stream& s) { run(p, o, s); }});
    }
  }
  expect_cpu_agrees(list);
}

TEST(GemmTest, cuda_agrees_with_the_reference) {
  expect_cuda_agrees(cases({{1, 1, 1}, {1, 7, 3}, {2, 1, 17}, {17, 33, 7}, {65, 3, 34}}));
}

// Rows with and without alignment to 16 bytes, products of several tiles, long sums.
TEST(GemmTest, cuda_agrees_with_the_reference_on_larger_sizes) {
  expect_cuda_agrees(cases({{96, 64, 80}, {129, 65, 200}}));
  std::vector<Case> list;
  for (const Size& size : {Size{384, 256, 320}, Size{48, 64, 4000}, Size{15, 2048, 160}}) {
    for (const Types& types : {Types{DType::f32, DType::f32}, Types{DType::bf16, DType::bf16},
                               Types{DType::bf16, DType::f32}, Types{DType::f16, DType::f16},
                               Types{DType::f16, DType::f32}}) {
      for (const auto& [trans_a, trans_b, variant] :
           {std::tuple{false, true, Variant::bias_and_gelu},
            std::tuple{false, true, Variant::bias_and_residual},
            std::tuple{false, false, Variant::gelu_grad}, std::tuple{true, false, Variant::beta},
            std::tuple{true, false, Variant::bias_gradient}}) {
        const Problem p = {size, types, trans_a, trans_b, variant};
        list.push_back({fmt::format("{} x {} x {} {} -> {} epilogue {}", size.m, size.n, size.k,
                                    base::name_of(types.in), base::name_of(types.out),
                                    static_cast<int>(variant)),
                        [p](Operands& o, Stream& s) { run(p, o, s); }});
      }
    }
  }
  expect_cuda_agrees(list);
}

// Products that are large enough for the choice among algorithms, without gaps between rows.
TEST(GemmTest, cuda_agrees_with_the_reference_on_a_measured_size) {
  std::vector<Case> list;
  for (const DType out : {DType::bf16, DType::f32}) {
    for (const Variant variant : {Variant::gelu_grad, Variant::bias_gradient,
                                  Variant::bias_gradient_bf16, Variant::bias_gradient_and_beta}) {
      const bool is_weight_gradient = variant != Variant::gelu_grad;
      const Problem p = {{528, 512, 2000}, {DType::bf16, out}, is_weight_gradient, false, variant};
      list.push_back(
          {fmt::format("bf16 -> {} epilogue {}", base::name_of(out), static_cast<int>(variant)),
           [p](Operands& o, Stream& s) { run(p, o, s); }});
    }
  }
  expect_cuda_agrees(list);
}

TEST(GemmTest, bits_do_not_depend_on_threads) {
  expect_bits_do_not_depend_on_threads(cases({{65, 33, 34}}));
}

TEST(GemmTest, large_bits_do_not_depend_on_threads) {
  std::vector<Case> list;
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    for (const Problem& p :
         {Problem{{300, 260, 300}, {dtype, DType::f32}, true, false, Variant::bias_gradient},
          Problem{{300, 260, 300}, {dtype, dtype}, false, false, Variant::gelu_grad_and_more}}) {
      list.push_back({"300 x 260 x 300", [p](Operands& o, Stream& s) { run(p, o, s); }});
    }
  }
  expect_bits_do_not_depend_on_threads(list);
}

// d = gelu(a b + bias): the gradient goes back through GeluGradient, the two products and
// BiasGradient.
TEST(GemmTest, epilogues_have_the_gradient_of_finite_differences) {
  constexpr int64_t T = 5, F = 6, D = 4;
  Machine machine(reference_kernels());
  Reals x({T, D}, 1), w({F, D}, 2), bias({F}, 3), w2({D, F}, 4), residual({T, D}, 5);
  Reals weights({T, D}, 6), u({T, F}), h({T, F}), y({T, D});
  const auto loss = [&] {
    machine.device.kernels().gemm(
        *machine.stream, {.a = x.tensor,
                          .b = w.tensor,
                          .d = h.tensor,
                          .trans_b = true,
                          .epilogue = GeluForward{.bias = bias.tensor, .input = u.tensor}});
    machine.device.kernels().gemm(*machine.stream,
                                  {.a = h.tensor,
                                   .b = w2.tensor,
                                   .d = y.tensor,
                                   .trans_b = true,
                                   .epilogue = AddTerms{.residual = residual.tensor}});
    return inner(weights, y);
  };
  loss();
  Reals du({T, F}), dx({T, D}), dw({F, D}), dw2({D, F}), dbias({F}), du_sum({F}), again({T, F});
  const auto gemm = [&](const GemmArgs& args) {
    machine.device.kernels().gemm(*machine.stream, args);
  };
  gemm({.a = weights.tensor,
        .b = w2.tensor,
        .d = du.tensor,
        .epilogue = GeluGradient{.input = u.tensor, .d_sum = du_sum.tensor, .gelu = again.tensor}});
  EXPECT_EQ(again.values, h.values);
  // The slope that the forward may store gives the same result.
  Reals slope({T, F}), same({T, F}), same_sum({F});
  gemm({.a = x.tensor,
        .b = w.tensor,
        .d = same.tensor,
        .trans_b = true,
        .epilogue = GeluForwardSlope{.bias = bias.tensor, .slope = slope.tensor}});
  EXPECT_EQ(same.values, h.values);
  gemm({.a = weights.tensor,
        .b = w2.tensor,
        .d = same.tensor,
        .epilogue = ScaleBy{.factor = slope.tensor, .d_sum = same_sum.tensor}});
  EXPECT_EQ(same.values, du.values);
  EXPECT_EQ(same_sum.values, du_sum.values);
  gemm({.a = weights.tensor, .b = h.tensor, .d = dw2.tensor, .trans_a = true, .beta = 1});
  gemm({.a = du.tensor, .b = w.tensor, .d = dx.tensor});
  gemm({.a = du.tensor,
        .b = x.tensor,
        .d = dw.tensor,
        .trans_a = true,
        .beta = 1,
        .epilogue = BiasGradient{dbias.tensor}});
  expect_gradient("x", x, dx, loss);
  expect_gradient("w", w, dw, loss);
  expect_gradient("w2", w2, dw2, loss);
  expect_gradient("bias", bias, dbias, loss);
  expect_gradient("bias", bias, du_sum, loss);
  expect_gradient("residual", residual, weights, loss);
}

}  // namespace
}  // namespace trireme::kernels::gemm_test
