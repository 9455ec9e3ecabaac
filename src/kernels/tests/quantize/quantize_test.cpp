// SPDX-License-Identifier: Apache-2.0
// Codes and scales of activations and gradients. They must have the reference's bits on every
// table; the reference itself is compared with hand-made examples and exact arithmetic.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "base/float8.h"
#include "kernels/ops.h"
#include "kernels/tests/op_test.h"

namespace trireme::kernels::quantize_test {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr double nan = std::numeric_limits<double>::quiet_NaN();

// What x contains.
enum class Values : uint8_t { normal, wide, special, finite_special, zeros, tiny, count };
// Which largest magnitude is given, with one scale.
enum class Amax : uint8_t { actual, smaller, zero, infinite, not_a_number, smallest, count };

struct Problem {
  int64_t rows, cols;
  DType x, format;
  ScaleShape shape;
  bool by_rows, by_columns;
  Values values = Values::normal;
  Amax amax = Amax::actual;
  bool is_delayed = false, measures = true;
  int64_t end = -1;  // rows that are used; -1: all, without the argument
};

double value_of(Values kind, int64_t r, int64_t c) {
  constexpr double special[] = {0.0,      -0.0,   1.0,    -1.5,     448.0,     -448.0, 464.0,
                                57344.0,  1e-3,   0x1p-9, 1e30,     -3e38,     1e-30,  1e-45,
                                0x1p-126, -7e-10, nan,    infinity, -infinity, -nan};
  constexpr int64_t finite_count = 16, count = 20;
  const int64_t i = r * 31 + c * 7 + r * c;
  switch (kind) {
    case Values::special:
      return special[i % count];
    case Values::finite_special:
      return special[i % finite_count];
    case Values::wide:  // many powers of two
      return std::ldexp(1.0 + static_cast<double>(i % 64) / 64, static_cast<int>(i % 40) - 20) *
             (i % 3 == 0 ? -1 : 1);
    case Values::tiny:  // their quotient is not a finite fp32
      return i % 2 == 0 ? 1e-38 : -1e-40;
    default:
      return 0;
  }
}

Tensor amax_of(const Problem& p, const Tensor& x, Operands& operands) {
  const auto given = [&](double value) {
    return operands.input({1}, {}, [=](int64_t, int64_t) { return value; });
  };
  switch (p.amax) {
    case Amax::smaller:
      return given(0.125);
    case Amax::infinite:
      return given(infinity);
    case Amax::not_a_number:
      return given(nan);
    case Amax::smallest:
      return given(1e-45);
    default: {
      const Tensor amax = given(0);
      if (p.amax == Amax::actual) {
        operands.prepare([&](Stream& s) { ops::amax(s, {.x = x, .amax = amax}); });
      }
      return amax;
    }
  }
}

void run(const Problem& p, Operands& operands, Stream& stream) {
  const Make make = {.dtype = p.x, .gap = p.cols % 3};
  QuantizeArgs args;
  const Tensor x = p.values == Values::normal
                       ? operands.input({p.rows, p.cols}, make)
                       : operands.input({p.rows, p.cols}, make, [&](int64_t r, int64_t c) {
                           return value_of(p.values, r, c);
                         });
  args.x = x;
  args.shape = p.shape;
  const auto codes = [&](int64_t rows, int64_t cols, int64_t gap) {
    return operands.result({rows, cols}, {.dtype = p.format, .gap = gap, .exact = true});
  };
  const auto scales = [&](int64_t rows, int64_t cols) {
    return operands.result(spec::scale_spec(p.shape, rows, cols).shape, {.exact = true});
  };
  if (p.by_rows) {
    args.rows = codes(p.rows, p.cols, p.rows % 4);
    args.rows_scale = scales(p.rows, p.cols);
  }
  if (p.by_columns) {
    args.columns = codes(p.cols, p.rows, p.rows % 5);
    args.columns_scale = scales(p.cols, p.rows);
  }
  if (p.shape == ScaleShape::tensor) args.amax = amax_of(p, x, operands);
  args.counts = operands.counts();
  args.measures = p.measures;
  args.is_delayed = p.is_delayed;
  if (p.end >= 0) args.end = operands.integers({static_cast<int32_t>(p.end)});
  ops::quantize(stream, args);
}

Case case_of(const Problem& p) {
  return {fmt::format("{} x {} {} -> {} shape {}{}{} values {} amax {}{} end {}", p.rows, p.cols,
                      base::name_of(p.x), base::name_of(p.format), static_cast<int>(p.shape),
                      p.by_rows ? " rows" : "", p.by_columns ? " columns" : "",
                      static_cast<int>(p.values), static_cast<int>(p.amax),
                      p.is_delayed ? " delayed" : "", p.end),
          [p](Operands& o, Stream& s) { run(p, o, s); }};
}

std::vector<Case> cases() {
  std::vector<Case> list;
  for (const DType format : {DType::f8e4m3, DType::f8e5m2}) {
    for (const ScaleShape shape : {ScaleShape::tensor, ScaleShape::row_128}) {
      const std::pair<int64_t, int64_t> sizes[] = {{1, 1},     {3, 5},     {16, 16}, {7, 128},
                                                   {128, 128}, {129, 257}, {5, 300}, {300, 66}};
      for (const auto& [rows, cols] : sizes) {
        for (const DType x : {DType::f32, DType::bf16, DType::f16}) {
          list.push_back(case_of({rows, cols, x, format, shape, true, true}));
        }
        list.push_back(case_of({rows, cols, DType::bf16, format, shape, true, false}));
        list.push_back(case_of({rows, cols, DType::bf16, format, shape, false, true}));
      }
      for (int values = 1; values < static_cast<int>(Values::count); ++values) {
        for (const DType x : {DType::f32, DType::bf16, DType::f16}) {
          Problem p = {140, 260, x, format, shape, true, true, static_cast<Values>(values)};
          list.push_back(case_of(p));
          p.by_rows = false;
          list.push_back(case_of(p));
        }
      }
      // Rows that are not used.
      for (const int64_t end : {0, 128}) {
        Problem p = {200, 48, DType::bf16, format, shape, true, true};
        p.end = end;
        list.push_back(case_of(p));
      }
    }
    for (int amax = 1; amax < static_cast<int>(Amax::count); ++amax) {
      for (const Values values : {Values::normal, Values::special}) {
        for (const bool is_delayed : {false, true}) {
          list.push_back(case_of({33, 70, DType::bf16, format, ScaleShape::tensor, true, true,
                                  values, static_cast<Amax>(amax), is_delayed, !is_delayed}));
        }
      }
    }
    Problem p = {40, 64, DType::bf16, format, ScaleShape::tensor, true, true};
    p.end = 21;
    list.push_back(case_of(p));
  }
  return list;
}

TEST(QuantizeTest, cpu_has_the_bits_of_the_reference) { expect_cpu_agrees(cases()); }
TEST(QuantizeTest, cuda_has_the_bits_of_the_reference) { expect_cuda_agrees(cases()); }
TEST(QuantizeTest, bits_do_not_depend_on_threads) { expect_bits_do_not_depend_on_threads(cases()); }

// Sums of counts have the same bits, too, on the CPU.
TEST(QuantizeTest, counts_do_not_depend_on_threads) {
  QuantizeCounts expected = {};
  for (const int threads : {1, 2, 3, 4}) {
    Machine machine(cpu_kernels(), {.threads = threads});
    Operands operands(1);
    const Tensor x = operands.input({700, 300}, {.dtype = DType::bf16});
    const Tensor rows = operands.result({700, 300}, {.dtype = DType::f8e4m3});
    const Tensor scale = operands.result(spec::scale_spec(ScaleShape::row_128, 700, 300).shape);
    const Tensor counts = operands.counts();
    ops::quantize(*machine.stream, {.x = x,
                                    .rows = rows,
                                    .rows_scale = scale,
                                    .shape = ScaleShape::row_128,
                                    .counts = counts,
                                    .measures = true});
    machine.stream->synchronize();
    const auto& found = *reinterpret_cast<const QuantizeCounts*>(counts.data);
    if (threads == 1) expected = found;
    EXPECT_EQ(std::memcmp(&found, &expected, sizeof found), 0) << threads;
    EXPECT_EQ(found.values, 700 * 300);
    // The noise of E4M3 is about 2^-4 / sqrt(12) of a value, rms over a binade.
    EXPECT_GT(found.signal / found.noise, 800);
    EXPECT_LT(found.signal / found.noise, 3000);
  }
}

// One row in which every number is known: amax 3.5 gives up = 128 and scale = 1 / 128.
TEST(QuantizeTest, known_codes) {
  for_each_machine([](Machine& machine) {
    Operands operands(1, machine);
    const double x[] = {3.5, -3.5, 0.0, -0.0, 1.0, 0x1p-16, 0x1p-17, 0x1.8p-16, 3.0, 3.125};
    const Tensor values = operands.input({1, 10}, {}, [&](int64_t, int64_t c) { return x[c]; });
    const Tensor rows = operands.result({1, 10}, {.dtype = DType::f8e4m3});
    const Tensor columns = operands.result({10, 1}, {.dtype = DType::f8e4m3});
    const Tensor rows_scale = operands.result({1}), columns_scale = operands.result({1});
    const Tensor amax = operands.updated({1}, {}, [](int64_t, int64_t) { return 0; });
    const Tensor counts = operands.counts();
    ops::amax(*machine.stream, {.x = values, .amax = amax});
    ops::quantize(*machine.stream, {.x = values,
                                    .rows = rows,
                                    .columns = columns,
                                    .rows_scale = rows_scale,
                                    .columns_scale = columns_scale,
                                    .amax = amax,
                                    .counts = counts,
                                    .measures = true});
    machine.stream->synchronize();
    // 1 * 128 = 2^7 has exponent 14; 2^-16 * 128 is the smallest value, and half of it a tie; 3 *
    // 128 = 384 = 1.5 * 2^8; 3.125 * 128 = 400 is a tie of 384 and 416, whose code 0x7d is odd.
    const uint8_t expected[] = {0x7e, 0xfe, 0x00, 0x80, 0x70, 0x01, 0x00, 0x02, 0x7c, 0x7c};
    for (size_t i = 0; i < 10; ++i) {
      EXPECT_EQ(static_cast<uint8_t>(rows.data[i]), expected[i]) << i;
      EXPECT_EQ(static_cast<uint8_t>(columns.data[i]), expected[i]) << i;
    }
    EXPECT_EQ(values_of(rows_scale)[0], 1.0 / 128);
    EXPECT_EQ(values_of(columns_scale)[0], 1.0 / 128);
    const auto& found = *reinterpret_cast<const QuantizeCounts*>(counts.data);
    EXPECT_EQ(found.amax_bits, std::bit_cast<uint32_t>(3.5F));
    EXPECT_EQ(found.values, 10);
    EXPECT_EQ(found.flushed, 1);
    EXPECT_EQ(found.saturated, 0);
    EXPECT_EQ(found.noise, 0x1p-34 + 0x1p-34 + 0x1p-6);
    operands.expect_intact();
  });
}

// Every value is within half a step of its code times its scale, in exact arithmetic.
TEST(QuantizeTest, values_return_within_half_a_step) {
  constexpr int64_t rows = 130, cols = 200;
  for (const DType format : {DType::f8e4m3, DType::f8e5m2}) {
    for (const ScaleShape shape : {ScaleShape::tensor, ScaleShape::row_128}) {
      for_each_machine([&](Machine& machine) {
        Operands operands(1, machine);
        const Tensor x = operands.input(
            {rows, cols}, {}, [](int64_t r, int64_t c) { return value_of(Values::wide, r, c); });
        const Tensor codes = operands.result({rows, cols}, {.dtype = format});
        const Tensor scale = operands.result(spec::scale_spec(shape, rows, cols).shape);
        QuantizeArgs args = {.x = x, .rows = codes, .rows_scale = scale, .shape = shape};
        if (shape == ScaleShape::tensor) {
          const Tensor amax = operands.updated({1}, {}, [](int64_t, int64_t) { return 0; });
          ops::amax(*machine.stream, {.x = x, .amax = amax});
          args.amax = amax;
        }
        ops::quantize(*machine.stream, args);
        machine.stream->synchronize();
        const bool is_e4m3 = format == DType::f8e4m3;
        const double half_step = is_e4m3 ? 0x1p-4 : 0x1p-3,
                     half_smallest = is_e4m3 ? 0x1p-10 : 0x1p-17;
        const std::vector<double> values = values_of(x), scales = values_of(scale);
        for (size_t i = 0; i < values.size(); ++i) {
          const auto bits = static_cast<uint8_t>(codes.data[i]);
          base::E4m3 e4m3;
          base::E5m2 e5m2;
          e4m3.bits = e5m2.bits = bits;
          const double code =
              static_cast<double>(is_e4m3 ? static_cast<float>(e4m3) : static_cast<float>(e5m2));
          const auto padded = static_cast<size_t>(scale.cols());
          const double s =
              shape == ScaleShape::tensor ? scales[0] : scales[i % cols / 128 * padded + i / cols];
          // 1e-6: the roundings of up, of the product and of the scale.
          const double allowed = std::max(std::abs(values[i]) * half_step, half_smallest * s) +
                                 1e-6 * std::abs(values[i]);
          ASSERT_LE(std::abs(values[i] - code * s), allowed) << i;
        }
      });
    }
  }
}

// By rows and by columns a value that is far from being flushed is the same number, though the
// largest magnitudes differ.
TEST(QuantizeTest, rows_and_columns_of_128_round_to_the_same_numbers) {
  constexpr int64_t rows = 256, cols = 384;
  for (const DType format : {DType::f8e4m3, DType::f8e5m2}) {
    for_each_machine([&](Machine& machine) {
      Operands operands(1, machine);
      const Tensor x =
          operands.input({rows, cols}, {.dtype = DType::bf16}, [](int64_t r, int64_t c) {
            const int64_t mixed = (r * 7919 + c * 104729) % 1009;
            const double size = std::exp2(static_cast<double>(r % 5 + c % 4) - 4);
            return (mixed % 2 == 0 ? 1 : -1) * size * (1 + static_cast<double>(mixed) / 1009);
          });
      const Tensor by_rows = operands.result({rows, cols}, {.dtype = format});
      const Tensor by_columns = operands.result({cols, rows}, {.dtype = format});
      const Tensor rows_scale =
          operands.result(spec::scale_spec(ScaleShape::row_128, rows, cols).shape);
      const Tensor columns_scale =
          operands.result(spec::scale_spec(ScaleShape::row_128, cols, rows).shape);
      ops::quantize(*machine.stream, {.x = x,
                                      .rows = by_rows,
                                      .columns = by_columns,
                                      .rows_scale = rows_scale,
                                      .columns_scale = columns_scale,
                                      .shape = ScaleShape::row_128});
      machine.stream->synchronize();
      const std::vector<double> row_scales = values_of(rows_scale);
      const std::vector<double> column_scales = values_of(columns_scale);
      const auto value = [&](const Tensor& codes, int64_t at) {
        const auto bits = static_cast<uint8_t>(codes.data[at]);
        base::E4m3 e4m3;
        base::E5m2 e5m2;
        e4m3.bits = e5m2.bits = bits;
        return static_cast<double>(format == DType::f8e4m3 ? static_cast<float>(e4m3)
                                                           : static_cast<float>(e5m2));
      };
      for (int64_t r = 0; r < rows; ++r) {
        for (int64_t c = 0; c < cols; ++c) {
          const double of_row = row_scales[static_cast<size_t>(c / 128 * rows_scale.cols() + r)];
          const double of_column =
              column_scales[static_cast<size_t>(r / 128 * columns_scale.cols() + c)];
          ASSERT_EQ(value(by_rows, r * cols + c) * of_row,
                    value(by_columns, c * rows + r) * of_column)
              << r << ", " << c;
          ASSERT_EQ(std::exp2(std::floor(std::log2(of_row))), of_row);
        }
      }
    });
  }
}

// ---- transpose

std::vector<Case> transposes() {
  std::vector<Case> list;
  for (const DType dtype : {DType::f8e4m3, DType::f8e5m2, DType::f32}) {
    const std::pair<int64_t, int64_t> sizes[] = {{1, 1}, {3, 70}, {64, 64}, {130, 97}, {256, 16}};
    for (const auto& [rows, cols] : sizes) {
      for (const int64_t count : {1, 3}) {
        list.push_back(
            {fmt::format("{} x {} x {} {}", count, rows, cols, base::name_of(dtype)),
             [=](Operands& o, Stream& s) {
               const Tensor x = o.input({count * rows, cols}, {.dtype = dtype, .gap = rows % 3});
               const Tensor d =
                   o.result({count * cols, rows}, {.dtype = dtype, .gap = cols % 4, .exact = true});
               ops::transpose(s, {.x = x, .d = d, .count = count});
             }});
      }
    }
  }
  return list;
}

TEST(TransposeTest, cpu_has_the_bits_of_the_reference) { expect_cpu_agrees(transposes()); }
TEST(TransposeTest, cuda_has_the_bits_of_the_reference) { expect_cuda_agrees(transposes()); }

}  // namespace
}  // namespace trireme::kernels::quantize_test
