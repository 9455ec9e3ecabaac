// SPDX-License-Identifier: Apache-2.0
// Products of 8-bit operands against fp64 products of the same codes and scales. A result may
// differ by so much in the relative L2 norm:
//                       f32    bf16
//   CPU                 2e-6   5e-3   sums are fp32
//   GPU                 1e-3   5e-3   sums of 128 codes keep about 14 bits: 4.7e-4 measured
//   GPU, fast_sums      1e-2   2e-2   all sums do: 3.7e-3 measured with k = 512
// bf16 results have two roundings of at most 2^-8, of a slope or input of GELU and of d, and on a
// GPU a third one, of the product. On the CPU half of the bound is allowed without GELU.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <vector>

#include "device/accelerator.h"
#include "kernels/ops.h"
#include "kernels/tests/op_test.h"

namespace trireme::kernels::gemm_float8_test {
namespace {

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
  bias_gradient_and_beta,
  count
};

struct Shapes {
  ScaleShape a, b;
};
constexpr Shapes all_shapes[] = {{ScaleShape::tensor, ScaleShape::tensor},
                                 {ScaleShape::row_128, ScaleShape::block_128},
                                 {ScaleShape::row_128, ScaleShape::row_128}};
struct Formats {
  DType a, b;
};
constexpr Formats all_formats[] = {
    {DType::f8e4m3, DType::f8e4m3}, {DType::f8e5m2, DType::f8e4m3}, {DType::f8e4m3, DType::f8e5m2}};

struct Problem {
  int64_t m, n, k;
  Shapes shapes = all_shapes[0];
  Formats formats = all_formats[0];
  DType out = DType::f32;
  Variant variant = Variant::none;
  bool fast_sums = false;
  int64_t gap = 0;

  std::string name() const {
    return fmt::format("m {} n {} k {} shapes {} {} {} {} -> {} epilogue {}{}", m, n, k,
                       static_cast<int>(shapes.a), static_cast<int>(shapes.b),
                       base::name_of(formats.a), base::name_of(formats.b), base::name_of(out),
                       static_cast<int>(variant), fast_sums ? " fast" : "");
  }
};

// Scales of different sizes, 0.005 to 0.02; padding of their rows holds NaN.
Tensor scales(Operands& operands, ScaleShape shape, int64_t rows, int64_t cols) {
  const Shape full = spec::scale_spec(shape, rows, cols).shape;
  const int64_t used = shape == ScaleShape::row_128     ? rows
                       : shape == ScaleShape::block_128 ? (cols + 127) / 128
                                                        : 1;
  return operands.input(full, {}, [&](int64_t r, int64_t c) {
    if (full.ndim() == 2 && c >= used) return std::nan("");
    return 0.005 * (1 + static_cast<double>((r * 5 + c * 3) % 13) / 4);
  });
}

// Queues the product. Returns the tensors that it writes.
std::vector<Tensor> run(const Problem& p, Operands& operands, Stream& stream) {
  // Codes of values up to the format's largest, and sums of the size of d.
  const auto codes = [&](DType format, int64_t rows) {
    const float size = format == DType::f8e4m3 ? 100 : 2000;
    return operands.input({rows, p.k}, {.dtype = format, .gap = p.gap, .size = size});
  };
  GemmArgs args;
  args.trans_b = true;
  args.a = codes(p.formats.a, p.m);
  args.b = codes(p.formats.b, p.n);
  args.shape_a = p.shapes.a;
  args.shape_b = p.shapes.b;
  args.scale_a = scales(operands, p.shapes.a, p.m, p.k);
  args.scale_b = scales(operands, p.shapes.b, p.n, p.k);
  args.fast_sums = p.fast_sums;
  const bool has_gelu =
      p.variant == Variant::bias_and_gelu || p.variant == Variant::bias_and_gelu_slope;
  // GELU is interesting near zero.
  const double value_size =
      (p.formats.a == p.formats.b ? 1.0 : 20.0) * std::sqrt(static_cast<double>(p.k));
  if (has_gelu) args.alpha = static_cast<float>(2 / value_size);
  const Make make = {.dtype = p.out, .gap = p.gap};
  std::vector<Tensor> written;
  const auto result = [&] {
    written.push_back(operands.result({p.m, p.n}, make));
    return written.back();
  };
  const auto updated = [&](const Shape& shape, const Make& how) {
    written.push_back(operands.updated(shape, how));
    return written.back();
  };
  const auto bias = [&] { return operands.input({p.n}, {.dtype = p.out}); };
  const auto matrix = [&] { return operands.input({p.m, p.n}, make); };
  switch (p.variant) {
    case Variant::bias:
      args.epilogue = AddTerms{.bias = bias()};
      break;
    case Variant::bias_and_residual:
      args.epilogue = AddTerms{.bias = bias(), .residual = matrix()};
      break;
    case Variant::beta:
      args.beta = 1;
      break;
    case Variant::alpha_and_beta:
      args.alpha = -0.5F;
      args.beta = 0.25F;
      break;
    case Variant::bias_and_gelu:
      args.epilogue = GeluForward{.bias = bias(), .input = result()};
      break;
    case Variant::bias_and_gelu_slope:
      args.epilogue = GeluForwardSlope{.bias = bias(), .slope = result()};
      break;
    case Variant::gelu_grad:
      args.epilogue = GeluGradient{.input = matrix()};
      break;
    case Variant::gelu_grad_and_more: {
      // Sums of values that may each be rounded either way: see gelu_gradient_test.cpp.
      const Tensor d_sum = p.out == DType::f32 ? updated({p.n}, {}) : Tensor{};
      const Tensor input = matrix();
      args.epilogue = GeluGradient{.input = input, .d_sum = d_sum, .gelu = result()};
      break;
    }
    case Variant::scale:
      args.epilogue = ScaleBy{.factor = matrix()};
      break;
    case Variant::bias_gradient:
    case Variant::bias_gradient_and_beta:
      args.epilogue = BiasGradient{updated({p.m}, {})};
      args.beta = p.variant == Variant::bias_gradient ? 0 : 1;
      break;
    default:
      break;
  }
  const bool in_place = p.variant == Variant::residual_in_place ||
                        p.variant == Variant::gelu_grad_in_place ||
                        p.variant == Variant::scale_in_place;
  args.d = in_place || args.beta != 0 ? updated({p.m, p.n}, make) : result();
  if (p.variant == Variant::residual_in_place) args.epilogue = AddTerms{.residual = args.d};
  if (p.variant == Variant::gelu_grad_in_place) args.epilogue = GeluGradient{.input = args.d};
  if (p.variant == Variant::scale_in_place) args.epilogue = ScaleBy{.factor = args.d};
  ops::gemm(stream, args);
  return written;
}

struct Bounds {
  double f32, bf16;
};
constexpr Bounds cpu_bounds = {2e-6, 5e-3}, gpu_bounds = {1e-3, 5e-3}, fast_bounds = {1e-2, 2e-2};

// A few bf16 values may all be rounded the other way, by 2^-7 at most.
void expect_near(const Tensor& found, const Tensor& expected, const Bounds& bounds) {
  const std::vector<double> x = values_of(found), y = values_of(expected);
  double squares = 0, errors = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    squares += y[i] * y[i];
    errors += (x[i] - y[i]) * (x[i] - y[i]);
  }
  const double rounded = x.size() < 64 ? std::max(0x1p-7, bounds.bf16) : bounds.bf16;
  const double bound = found.dtype == DType::bf16 ? rounded : bounds.f32;
  EXPECT_GT(squares, 0);
  EXPECT_LE(std::sqrt(errors / squares), bound) << found.shape.to_string();
}

// What the reference computes for one problem.
struct Expected {
  std::unique_ptr<Operands> operands = std::make_unique<Operands>(1);
  std::vector<Tensor> written;
};

std::vector<Expected> expected_of(const std::vector<Problem>& problems) {
  std::vector<Expected> all(problems.size());
  over_threads(std::ssize(problems), 1 << 20, [&](int64_t first, int64_t last) {
    const Machine reference(reference_kernels());
    for (auto i = static_cast<size_t>(first); i < static_cast<size_t>(last); ++i) {
      all[i].written = run(problems[i], *all[i].operands, *reference.stream);
    }
  });
  return all;
}

void expect_all_near(Machine& machine, const std::vector<Problem>& problems) {
  const std::vector<Expected> all = expected_of(problems);
  const bool is_gpu = machine.device.kernels().gemm == cuda_kernels().gemm;
  for (size_t number = 0; number < problems.size(); ++number) {
    const Problem& p = problems[number];
    SCOPED_TRACE(p.name());
    Operands found(1, machine);
    const std::vector<Tensor>& y = all[number].written;
    const std::vector<Tensor> x = run(p, found, *machine.stream);
    machine.stream->synchronize();
    all[number].operands->expect_intact();
    found.expect_intact();
    for (size_t i = 0; i < x.size(); ++i) {
      SCOPED_TRACE(fmt::format("tensor {}", i));
      Bounds bounds = !is_gpu ? cpu_bounds : p.fast_sums ? fast_bounds : gpu_bounds;
      if (!is_gpu && p.variant <= Variant::alpha_and_beta) bounds.bf16 /= 2;
      expect_near(x[i], y[i], bounds);
    }
    if (testing::Test::HasFailure()) return;
  }
}

// Every epilogue with every pair of shapes and formats.
std::vector<Problem> problems(const std::vector<Problem>& sizes) {
  std::vector<Problem> list;
  for (Problem p : sizes) {
    for (const Shapes& shapes : all_shapes) {
      for (const DType out : {DType::f32, DType::bf16}) {
        for (int variant = 0; variant < static_cast<int>(Variant::count); ++variant) {
          p.shapes = shapes;
          p.out = out;
          p.variant = static_cast<Variant>(variant);
          p.formats = all_formats[static_cast<size_t>(variant) % 3];
          list.push_back(p);
        }
      }
    }
  }
  return list;
}

TEST(GemmFloat8Test, cpu_has_the_product_of_any_size) {
  Machine cpu(cpu_kernels(), {.threads = 2});
  expect_all_near(cpu, problems({{.m = 1, .n = 1, .k = 1},
                                 {.m = 17, .n = 33, .k = 7, .gap = 3},
                                 {.m = 16, .n = 48, .k = 144, .gap = 16},
                                 {.m = 131, .n = 70, .k = 300}}));
  std::vector<Problem> deep;
  for (const Shapes& shapes : all_shapes) {
    for (const Formats& formats : all_formats) {
      deep.push_back({.m = 130, .n = 144, .k = 2000, .shapes = shapes, .formats = formats});
    }
  }
  expect_all_near(cpu, deep);
}

// Sizes that recipes allow (Float8Recipe::grain()), aligned rows.
TEST(GemmFloat8Test, gpu_has_the_product) {
  const std::string problem = device::gpu_status().problem;
  if (!problem.empty()) GTEST_SKIP() << problem;
  Machine gpu = gpu_machine();
  expect_all_near(gpu, problems({{.m = 128, .n = 128, .k = 128},
                                 {.m = 256, .n = 384, .k = 512},
                                 {.m = 128, .n = 256, .k = 384, .gap = 16}}));
  std::vector<Problem> more;
  for (const Formats& formats : all_formats) {
    for (const DType out : {DType::f32, DType::bf16}) {
      more.push_back({.m = 48, .n = 80, .k = 176, .formats = formats, .out = out});
      more.push_back(
          {.m = 256, .n = 512, .k = 512, .formats = formats, .out = out, .fast_sums = true});
      more.push_back({.m = 512, .n = 256, .k = 4096, .formats = formats, .out = out});
      for (const size_t shapes : {1U, 2U}) {
        more.push_back({.m = 384, .n = 256, .k = 2048, .shapes = all_shapes[shapes], .out = out});
      }
    }
  }
  expect_all_near(gpu, more);
}

TEST(GemmFloat8Test, gpu_repeats_its_bits) {
  const std::string problem = device::gpu_status().problem;
  if (!problem.empty()) GTEST_SKIP() << problem;
  Machine gpu = gpu_machine();
  for (const Shapes& shapes : all_shapes) {
    for (const Variant variant : {Variant::none, Variant::bias_gradient_and_beta}) {
      const Problem p = {.m = 256, .n = 384, .k = 2048, .shapes = shapes, .variant = variant};
      SCOPED_TRACE(p.name());
      Operands first(1, gpu), second(1, gpu);
      run(p, first, *gpu.stream);
      run(p, second, *gpu.stream);
      gpu.stream->synchronize();
      second.expect_same_bits(first);
    }
  }
}

TEST(GemmFloat8Test, bits_do_not_depend_on_threads) {
  std::vector<Case> list;
  const std::vector<Problem> all = problems({{.m = 300, .n = 200, .k = 260}});
  for (size_t i = 0; i < all.size(); i += 4) {
    const Problem& p = all[i];
    list.push_back({p.name(), [p](Operands& o, Stream& s) { run(p, o, s); }});
  }
  expect_bits_do_not_depend_on_threads(list);
}

// A NaN and an infinity among the codes reach their rows of d, and no other.
TEST(GemmFloat8Test, codes_that_are_not_finite_reach_the_result) {
  for_each_machine([](Machine& machine) {
    Operands operands(1, machine);
    constexpr int64_t size = 128;
    const auto codes = [&](DType format) {
      return operands.input({size, size}, {.dtype = format}, [&](int64_t r, int64_t c) {
        return format == DType::f8e5m2 && r == 5 && c == 7 ? std::nan("") : 1.0;
      });
    };
    const Tensor a = codes(DType::f8e5m2), b = codes(DType::f8e4m3);
    const Tensor scale = operands.input({1}, {}, [](int64_t, int64_t) { return 0.5; });
    const Tensor d = operands.result({size, size});
    // 0x7c, the code of infinity, which no conversion writes.
    a.data[9 * size + 3] = std::byte{0x7c};
    ops::gemm(*machine.stream,
              {.a = a, .b = b, .d = d, .trans_b = true, .scale_a = scale, .scale_b = scale});
    machine.stream->synchronize();
    const std::vector<double> values = values_of(d);
    for (size_t i = 0; i < values.size(); ++i) {
      const size_t row = i / size;
      if (row == 5) {
        ASSERT_TRUE(std::isnan(values[i]));
      } else if (row == 9) {
        ASSERT_TRUE(std::isinf(values[i]));
      } else {
        ASSERT_EQ(values[i], size * 0.25);
      }
    }
  });
}

}  // namespace
}  // namespace trireme::kernels::gemm_float8_test
