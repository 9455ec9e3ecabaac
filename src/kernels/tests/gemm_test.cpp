// SPDX-License-Identifier: Apache-2.0
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <limits>
#include <tuple>

#include "kernels/ops.h"
#include "kernels/tests/row_test.h"

namespace trireme::kernels {
namespace {

struct Size {
  int64_t m, n, k;
};
struct Types {
  DType in, out;
};
enum class Epilogue : uint8_t {
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
  gelu_grad_and_more,  // d_sum, gelu_again
  factor,
  factor_in_place,
  a_sum,
  a_sum_bf16,
  a_sum_and_beta,
  count
};

struct Problem {
  Size size;
  Types types;
  bool trans_a, trans_b;
  Epilogue epilogue;
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
  bool d_is_read = false;
  switch (p.epilogue) {
    case Epilogue::none:
      args.alpha = 0.5F;
      break;
    case Epilogue::bias_and_residual:
      args.residual = operands.input({m, n}, out);
      [[fallthrough]];
    case Epilogue::bias:
      args.bias = operands.input({n}, {.dtype = p.types.out});
      break;
    case Epilogue::beta:
      args.beta = 1;
      d_is_read = true;
      break;
    case Epilogue::alpha_and_beta:
      args.alpha = -0.5F;
      args.beta = 0.25F;
      d_is_read = true;
      break;
    case Epilogue::bias_and_gelu:
      args.bias = operands.input({n}, {.dtype = p.types.out});
      args.gelu_input = operands.result({m, n}, {.dtype = p.types.out, .gap = 1, .terms = k});
      break;
    case Epilogue::bias_and_gelu_slope:
      args.bias = operands.input({n}, {.dtype = p.types.out});
      args.gelu_slope = operands.result({m, n}, {.dtype = p.types.out, .gap = 1, .terms = k});
      break;
    case Epilogue::factor:
      args.factor = operands.input({m, n}, out);
      break;
    case Epilogue::gelu_grad_and_more:
      // Of d as stored; a d that is near the reference's has a sum that is near its sum.
      args.d_sum = operands.updated({n}, {.dtype = p.types.in, .terms = m * k});
      args.gelu_again = operands.result({m, n}, {.dtype = p.types.out, .gap = 2});
      [[fallthrough]];
    case Epilogue::gelu_grad:
      args.gelu_grad_of = operands.input({m, n}, out);
      break;
    case Epilogue::residual_in_place:
    case Epilogue::gelu_grad_in_place:
    case Epilogue::factor_in_place:
      d_is_read = true;
      break;
    case Epilogue::a_sum:
      args.a_sum = operands.updated({m}, {.terms = k});
      break;
    case Epilogue::a_sum_and_beta:
      args.a_sum = operands.updated({m}, {.terms = k});
      args.beta = 1;
      d_is_read = true;
      break;
    case Epilogue::a_sum_bf16:
      args.a_sum = operands.updated({m}, {.dtype = DType::bf16, .terms = k});
      break;
    case Epilogue::count:
      break;
  }
  args.d = d_is_read ? operands.updated({m, n}, d_make) : operands.result({m, n}, d_make);
  if (p.epilogue == Epilogue::residual_in_place) args.residual = args.d;
  if (p.epilogue == Epilogue::gelu_grad_in_place) args.gelu_grad_of = args.d;
  if (p.epilogue == Epilogue::factor_in_place) args.factor = args.d;
  ops::gemm(stream, args);
}

std::vector<Case> cases(const std::vector<Size>& sizes) {
  const Types all_types[] = {{DType::f32, DType::f32},
                             {DType::bf16, DType::bf16},
                             {DType::bf16, DType::f32},
                             {DType::f32, DType::bf16}};
  std::vector<Case> list;
  for (const Size& size : sizes) {
    for (const Types& types : all_types) {
      for (int e = 0; e < static_cast<int>(Epilogue::count); ++e) {
        // Sums of values that may each be rounded either way: see
        // what_comes_with_the_gelu_gradient.
        if (static_cast<Epilogue>(e) == Epilogue::gelu_grad_and_more && types.out == DType::bf16) {
          continue;
        }
        for (int trans = 0; trans < 4; ++trans) {
          const Problem p = {size, types, (trans & 1) != 0, (trans & 2) != 0,
                             static_cast<Epilogue>(e)};
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
  for (const Epilogue epilogue : {Epilogue::none, Epilogue::bias_and_gelu, Epilogue::a_sum}) {
    for (const DType dtype : {DType::f32, DType::bf16}) {
      const Problem p = {
          {129, 65, 200}, {dtype, dtype}, epilogue == Epilogue::a_sum, true, epilogue};
      list.push_back({"129 x 65 x 200", [p](Operands& o, Stream& s) { run(p, o, s); }});
    }
  }
  expect_cpu_agrees(list);
}

TEST(GemmTest, cuda_agrees_with_the_reference) {
  expect_cuda_agrees(cases({{1, 1, 1}, {1, 7, 3}, {2, 1, 17}, {17, 33, 7}, {65, 3, 34}}));
}

// Rows that are aligned to 16 bytes and not, products of several tiles, long sums.
TEST(GemmTest, cuda_agrees_with_the_reference_on_larger_sizes) {
  expect_cuda_agrees(cases({{96, 64, 80}, {129, 65, 200}}));
  std::vector<Case> list;
  for (const Size& size : {Size{384, 256, 320}, Size{48, 64, 4000}, Size{15, 2048, 160}}) {
    for (const Types& types : {Types{DType::f32, DType::f32}, Types{DType::bf16, DType::bf16},
                               Types{DType::bf16, DType::f32}}) {
      for (const auto& [trans_a, trans_b, epilogue] :
           {std::tuple{false, true, Epilogue::bias_and_gelu},
            std::tuple{false, true, Epilogue::bias_and_residual},
            std::tuple{false, false, Epilogue::gelu_grad}, std::tuple{true, false, Epilogue::beta},
            std::tuple{true, false, Epilogue::a_sum}}) {
        const Problem p = {size, types, trans_a, trans_b, epilogue};
        list.push_back({fmt::format("{} x {} x {} {} -> {} epilogue {}", size.m, size.n, size.k,
                                    base::name_of(types.in), base::name_of(types.out),
                                    static_cast<int>(epilogue)),
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
    for (const Epilogue epilogue :
         {Epilogue::gelu_grad, Epilogue::a_sum, Epilogue::a_sum_bf16, Epilogue::a_sum_and_beta}) {
      const bool is_weight_gradient = epilogue != Epilogue::gelu_grad;
      const Problem p = {{528, 512, 2000}, {DType::bf16, out}, is_weight_gradient, false, epilogue};
      list.push_back(
          {fmt::format("bf16 -> {} epilogue {}", base::name_of(out), static_cast<int>(epilogue)),
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
  for (const DType dtype : {DType::f32, DType::bf16}) {
    for (const Problem& p :
         {Problem{{300, 260, 300}, {dtype, DType::f32}, true, false, Epilogue::a_sum},
          Problem{{300, 260, 300}, {dtype, dtype}, false, false, Epilogue::gelu_grad_and_more}}) {
      list.push_back({"300 x 260 x 300", [p](Operands& o, Stream& s) { run(p, o, s); }});
    }
  }
  expect_bits_do_not_depend_on_threads(list);
}

// d = gelu(a b + bias): the gradient goes back through gelu_grad_of, the two products and a_sum.
TEST(GemmTest, epilogues_have_the_gradient_of_finite_differences) {
  constexpr int64_t T = 5, F = 6, D = 4;
  Machine machine(reference_kernels());
  Reals x({T, D}, 1), w({F, D}, 2), bias({F}, 3), w2({D, F}, 4), residual({T, D}, 5);
  Reals weights({T, D}, 6), u({T, F}), h({T, F}), y({T, D});
  const auto loss = [&] {
    machine.device.kernels().gemm(*machine.stream, {.a = x.tensor,
                                                    .b = w.tensor,
                                                    .d = h.tensor,
                                                    .trans_b = true,
                                                    .bias = bias.tensor,
                                                    .gelu_input = u.tensor});
    machine.device.kernels().gemm(*machine.stream, {.a = h.tensor,
                                                    .b = w2.tensor,
                                                    .d = y.tensor,
                                                    .trans_b = true,
                                                    .residual = residual.tensor});
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
        .gelu_grad_of = u.tensor,
        .d_sum = du_sum.tensor,
        .gelu_again = again.tensor});
  EXPECT_EQ(again.values, h.values);
  // The slope that the forward may keep gives the same.
  Reals slope({T, F}), same({T, F}), same_sum({F});
  gemm({.a = x.tensor,
        .b = w.tensor,
        .d = same.tensor,
        .trans_b = true,
        .bias = bias.tensor,
        .gelu_slope = slope.tensor});
  EXPECT_EQ(same.values, h.values);
  gemm({.a = weights.tensor,
        .b = w2.tensor,
        .d = same.tensor,
        .factor = slope.tensor,
        .d_sum = same_sum.tensor});
  EXPECT_EQ(same.values, du.values);
  EXPECT_EQ(same_sum.values, du_sum.values);
  gemm({.a = weights.tensor, .b = h.tensor, .d = dw2.tensor, .trans_a = true, .beta = 1});
  gemm({.a = du.tensor, .b = w.tensor, .d = dx.tensor});
  gemm({.a = du.tensor,
        .b = x.tensor,
        .d = dw.tensor,
        .trans_a = true,
        .beta = 1,
        .a_sum = dbias.tensor});
  expect_gradient("x", x, dx, loss);
  expect_gradient("w", w, dw, loss);
  expect_gradient("w2", w2, dw2, loss);
  expect_gradient("bias", bias, dbias, loss);
  expect_gradient("bias", bias, du_sum, loss);
  expect_gradient("residual", residual, weights, loss);
}

}  // namespace
}  // namespace trireme::kernels
