// SPDX-License-Identifier: Apache-2.0
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <cmath>

#include "kernels/ops.h"
#include "kernels/tests/op_test.h"

namespace trireme::kernels::norm_test {
namespace {

enum class Alias : uint8_t { none, first, second };  // in place of which operand

struct Problem {
  NormKind kind;
  int64_t rows, width;
  DType dtype, grad_dtype;
  bool with_residual, with_bias;
  Alias alias;
};

constexpr float eps = 1e-5F;

void forward(const Problem& p, Operands& operands, Stream& stream) {
  const Make make = {.dtype = p.dtype, .gap = p.width % 3, .terms = p.width};
  const Shape shape = {p.rows, p.width};
  NormForwardArgs args;
  args.kind = p.kind;
  args.eps = eps;
  if (p.with_residual) {
    args.sum =
        p.alias == Alias::none ? operands.result(shape, make) : operands.updated(shape, make);
    args.x = p.alias == Alias::first ? args.sum : operands.input(shape, make);
    args.residual = p.alias == Alias::second ? args.sum : operands.input(shape, make);
  } else {
    args.x = operands.input(shape, make);
  }
  args.weight = operands.input({p.width}, {.dtype = p.dtype});
  if (p.with_bias) args.bias = operands.input({p.width}, {.dtype = p.dtype});
  args.y = operands.result(shape, make);
  // A single column, or rows without deviation, have statistics that are 1/sqrt(eps) large.
  args.stats = operands.result({p.rows, norm_stats(p.kind)}, {.gap = 1, .terms = p.width});
  ops::norm_forward(stream, args);
}

struct Extras {
  bool result = false;         // recomputes y
  bool dresidual_sum = false;  // requires a dresidual
};

void backward_of(const Problem& p, const Extras& extras, Operands& operands, Stream& stream) {
  const Shape shape = {p.rows, p.width};
  // dx is dy without its part along x (and its mean); in a narrow row that may be zero, so the
  // error is relative to the terms, 1/sqrt(eps) at most.
  const double dx_floor = p.width < 8 ? 1 / std::sqrt(static_cast<double>(eps)) : 0;
  const Make in = {.dtype = p.dtype, .gap = p.width % 4};
  const Make out = {.dtype = p.dtype, .gap = p.width % 3, .terms = p.width, .floor = dx_floor};
  const Make grad = {.dtype = p.grad_dtype, .terms = p.rows};
  NormBackwardArgs args;
  args.kind = p.kind;
  args.x = operands.input(shape, in);
  args.weight = operands.input({p.width}, {.dtype = p.dtype});
  const Tensor stats = operands.input({p.rows, norm_stats(p.kind)}, {.gap = 1});
  const Tensor y = operands.scratch(shape, p.dtype);
  operands.prepare([&](Stream& reference) {
    ops::norm_forward(
        reference,
        {.kind = p.kind, .eps = eps, .x = args.x, .weight = args.weight, .y = y, .stats = stats});
  });
  args.stats = stats;
  args.dx = p.alias == Alias::none ? operands.result(shape, out) : operands.updated(shape, out);
  args.dy = p.alias == Alias::first ? args.dx : operands.input(shape, in);
  if (p.with_residual) {
    args.dresidual = p.alias == Alias::second ? args.dx : operands.input(shape, in);
  }
  args.dweight = operands.updated({p.width}, grad);
  if (p.with_bias) args.dbias = operands.updated({p.width}, grad);
  if (p.with_residual && extras.dresidual_sum) {
    args.dresidual_sum = operands.updated({p.width}, grad);
  }
  const base::TensorSpec partials =
      norm_backward_partials(p.kind, p.rows, p.width, static_cast<bool>(args.dresidual_sum));
  args.partials = operands.scratch(partials.shape, partials.dtype);
  if (extras.result) {
    args.y = operands.result(shape, {.dtype = p.dtype, .gap = p.width % 5});
    if (p.with_bias) args.bias = operands.input({p.width}, {.dtype = p.dtype});
  }
  ops::norm_backward(stream, args);
}

void backward(const Problem& p, Operands& operands, Stream& stream) {
  backward_of(p, {}, operands, stream);
}

void backward_with_result(const Problem& p, Operands& operands, Stream& stream) {
  backward_of(p, {.result = true}, operands, stream);
}

void backward_with_sum(const Problem& p, Operands& operands, Stream& stream) {
  backward_of(p, {.result = p.width % 2 == 0, .dresidual_sum = true}, operands, stream);
}

std::vector<Case> cases(void (*row)(const Problem&, Operands&, Stream&),
                        const std::vector<int64_t>& row_counts = {1, 3, 33, 129},
                        const std::vector<int64_t>& widths = {1, 3, 17, 200}) {
  std::vector<Case> list;
  for (const int64_t rows : row_counts) {
    for (const int64_t width : widths) {
      for (const NormKind kind : {NormKind::rms, NormKind::layer}) {
        for (int variant = 0; variant < 15; ++variant) {
          const bool is_f16 = variant >= 12;
          const DType dtype = is_f16 ? DType::f16 : (variant & 1) != 0 ? DType::bf16 : DType::f32;
          const DType grad_dtype = !is_f16 && (variant & 2) != 0 ? DType::bf16 : DType::f32;
          const auto alias = static_cast<Alias>(is_f16 ? variant - 12 : variant / 4);
          const bool with_residual = alias != Alias::none || (variant + rows) % 2 == 0;
          const bool with_bias = kind == NormKind::layer && (variant + width) % 3 != 0;
          const Problem p = {kind, rows, width, dtype, grad_dtype, with_residual, with_bias, alias};
          list.push_back(
              {fmt::format("{} rows {} width {} variant {}",
                           kind == NormKind::rms ? "rms" : "layer", rows, width, variant),
               [=](Operands& o, Stream& s) { row(p, o, s); }});
        }
      }
    }
  }
  return list;
}

TEST(NormTest, cpu_forward_agrees_with_the_reference) { expect_cpu_agrees(cases(forward)); }

TEST(NormTest, cpu_backward_agrees_with_the_reference) {
  expect_cpu_agrees(cases(backward));
  expect_cpu_agrees(cases(backward_with_result));
  expect_cpu_agrees(cases(backward_with_sum));
}

// Widths of models, with rows that are aligned to vectors (multiples of 24) or not.
TEST(NormTest, cuda_forward_agrees_with_the_reference) {
  expect_cuda_agrees(cases(forward));
  expect_cuda_agrees(cases(forward, {70}, {24, 768, 1024, 1536, 4098}));
  expect_cuda_agrees(cases(forward, {3}, {16384, 12288}));
  expect_cuda_agrees(cases(forward, {1100}, {48}));
}

TEST(NormTest, cuda_backward_agrees_with_the_reference) {
  for (auto* row : {backward, backward_with_result, backward_with_sum}) {
    expect_cuda_agrees(cases(row));
    expect_cuda_agrees(cases(row, {70}, {24, 768, 1024, 1536, 1600, 4098}));
    expect_cuda_agrees(cases(row, {37}, {3072, 6144}));
    expect_cuda_agrees(cases(row, {3}, {16384, 12288}));
    expect_cuda_agrees(cases(row, {70}, {20480}));
    expect_cuda_agrees(cases(row, {1100}, {48}));
  }
}

// Rows with a mean that fp32 does not represent, and other strides than in the forward.
TEST(NormTest, backward_recomputes_the_bits_of_the_forward) {
  constexpr int64_t T = 37;
  for_each_machine([](Machine& machine) {
    for (int variant = 0; variant < 18; ++variant) {
      const NormKind kind = (variant & 1) != 0 ? NormKind::layer : NormKind::rms;
      const DType dtype = variant >= 16        ? DType::f16
                          : (variant & 2) != 0 ? DType::bf16
                                               : DType::f32;
      const bool with_bias = kind == NormKind::layer && (variant & 4) != 0;
      const int64_t gap = (variant & 8) != 0 ? 1 : 0;
      for (const int64_t D : {int64_t{5}, int64_t{200}, int64_t{768}, int64_t{2048}}) {
        SCOPED_TRACE(fmt::format("variant {} width {}", variant, D));
        Operands operands(static_cast<uint64_t>(D), machine);
        const Make make = {.dtype = dtype};
        const Tensor x = operands.input({T, D}, make, [](int64_t r, int64_t c) {
          return 10.0 + std::sin(static_cast<double>(1000 * r + c));
        });
        const Tensor weight = operands.input({D}, make);
        const Tensor bias = with_bias ? operands.input({D}, make) : Tensor{};
        const Tensor y = operands.result({T, D}, make);
        const Tensor stats = operands.result({T, norm_stats(kind)});
        ops::norm_forward(
            *machine.stream,
            {.kind = kind, .x = x, .weight = weight, .bias = bias, .y = y, .stats = stats});
        const Tensor again = operands.result({T, D}, {.dtype = dtype, .gap = gap});
        ops::norm_backward(*machine.stream,
                           {.kind = kind,
                            .dy = operands.input({T, D}, make),
                            .x = x,
                            .stats = stats,
                            .weight = weight,
                            .dx = operands.result({T, D}, make),
                            .dweight = operands.updated({D}),
                            .bias = bias,
                            .y = again,
                            .partials = operands.scratch(
                                norm_backward_partials(kind, T, D, false).shape, DType::f32)});
        machine.stream->synchronize();
        EXPECT_TRUE(values_of(y) == values_of(again));
      }
    }
  });
}

TEST(NormTest, bits_do_not_depend_on_threads) {
  expect_bits_do_not_depend_on_threads(cases(forward));
  expect_bits_do_not_depend_on_threads(cases(backward));
  expect_bits_do_not_depend_on_threads(cases(backward_with_result));
  expect_bits_do_not_depend_on_threads(cases(backward_with_sum));
}

// With mean 1000 and deviation 1, a variance computed as mean(x^2) - mean^2 would lose 6 digits.
void forward_with_large_mean(Operands& operands, Stream& stream) {
  const Tensor x = operands.input({5, 64}, {}, [](int64_t r, int64_t c) {
    return 1000.0 + std::sin(static_cast<double>(64 * r + c));
  });
  const Tensor weight = operands.input({64}), stats = operands.result({5, 2});
  // 1000 + s has an error of 2^-15 in fp32, and so has the difference.
  const Tensor y = operands.result({5, 64}, {.floor = 30});
  ops::norm_forward(stream,
                    {.kind = NormKind::layer, .x = x, .weight = weight, .y = y, .stats = stats});
}

TEST(NormTest, cpu_statistics_survive_a_large_mean) {
  expect_cpu_agrees({{"mean 1000", forward_with_large_mean}});
}

TEST(NormTest, cuda_statistics_survive_a_large_mean) {
  expect_cuda_agrees({{"mean 1000", forward_with_large_mean}});
}

TEST(NormTest, everything_has_the_gradient_of_finite_differences) {
  constexpr int64_t T = 3, D = 5;
  Machine machine(reference_kernels());
  const Kernels& rows = machine.device.kernels();
  for (const NormKind kind : {NormKind::rms, NormKind::layer}) {
    SCOPED_TRACE(kind == NormKind::rms ? "rms" : "layer");
    Reals x({T, D}, 1), residual({T, D}, 2), weight({D}, 3), bias({D}, 4), shift({D}, 7);
    Reals sum({T, D}), y({T, D}), stats({T, norm_stats(kind)});
    Reals y_weights({T, D}, 5), sum_weights({T, D}, 6);
    // Both results are used, as in a block: y by the layer, the sum by the residual path, to which
    // a bias is added.
    const auto loss = [&] {
      NormForwardArgs args;
      args.kind = kind;
      args.x = x.tensor;
      args.residual = residual.tensor;
      args.sum = sum.tensor;
      args.weight = weight.tensor;
      if (kind == NormKind::layer) args.bias = bias.tensor;
      args.y = y.tensor;
      args.stats = stats.tensor;
      rows.norm_forward(*machine.stream, args);
      double shifted = 0;
      for (size_t i = 0; i < sum.values.size(); ++i) {
        shifted += sum_weights.values[i] * (sum.values[i] + shift.values[i % D]);
      }
      return inner(y_weights, y) + shifted;
    };
    loss();
    Reals dx({T, D}), dweight({D}), dbias({D}), dshift({D}), partials({1, 3 * D});
    rows.norm_backward(*machine.stream, {.kind = kind,
                                         .dy = y_weights.tensor,
                                         .x = sum.tensor,
                                         .stats = stats.tensor,
                                         .weight = weight.tensor,
                                         .dresidual = sum_weights.tensor,
                                         .dx = dx.tensor,
                                         .dweight = dweight.tensor,
                                         .dbias = dbias.tensor,
                                         .dresidual_sum = dshift.tensor,
                                         .partials = partials.tensor});
    expect_gradient("x", x, dx, loss);
    expect_gradient("residual", residual, dx, loss);
    expect_gradient("weight", weight, dweight, loss);
    expect_gradient("bias after the sum", shift, dshift, loss);
    if (kind == NormKind::layer) expect_gradient("bias", bias, dbias, loss);
  }
}

}  // namespace
}  // namespace trireme::kernels::norm_test
