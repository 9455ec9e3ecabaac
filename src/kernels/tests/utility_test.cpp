// SPDX-License-Identifier: Apache-2.0
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "kernels/ops.h"
#include "kernels/tests/op_test.h"

namespace trireme::kernels::utility_test {
namespace {

struct Problem {
  Shape shape;
  Make x, d;
};

// All of these ops round once, after at most one operation, so their bits are determined.
void fill(const Problem& p, Operands& operands, Stream& stream) {
  ops::fill(stream, {.d = operands.result(p.shape, p.d), .value = -0.3F});
}

void fill_zero(const Problem& p, Operands& operands, Stream& stream) {
  for (const DType dtype : {DType::i32, DType::i64, DType::u8, p.d.dtype}) {
    const Make make = {.dtype = dtype, .gap = p.d.gap, .exact = true};
    ops::fill(stream, {.d = operands.result(p.shape, make)});
  }
}

void copy(const Problem& p, Operands& operands, Stream& stream) {
  const Tensor x = operands.input(p.shape, p.x);
  ops::copy(stream, {.x = x, .d = operands.result(p.shape, p.d)});
}

void accumulate(const Problem& p, Operands& operands, Stream& stream) {
  const Tensor x = operands.input(p.shape, p.x);
  ops::accumulate(stream, {.x = x, .d = operands.updated(p.shape, p.d)});
}

void maximum(const Problem& p, Operands& operands, Stream& stream) {
  if (p.x.dtype != DType::f32 || p.d.dtype != DType::f32) return;
  const int64_t cols = p.shape.row_elements();
  const Tensor x = operands.input(p.shape, p.x, [cols](int64_t r, int64_t c) {
    const int64_t i = r * cols + c;
    if (i % 11 == 3) return std::numeric_limits<double>::quiet_NaN();
    return i % 5 == 0 ? -std::numeric_limits<double>::infinity() : std::sin(static_cast<double>(i));
  });
  ops::accumulate(stream, {.x = x, .d = operands.updated(p.shape, p.d), .is_max = true});
}

void init_normal(const Problem& p, Operands& operands, Stream& stream) {
  if (p.shape.ndim() != 2) return;
  ops::init_normal(stream, {.d = operands.result(p.shape, p.d),
                            .key = 77,
                            .first = 1ULL << 33,
                            .global_row_stride = 300,
                            .std_dev = 0.02F});
}

const std::vector<Shape> shapes = {Shape{1, 1},     Shape{1, 7},    Shape{33, 1}, Shape{17, 65},
                                   Shape{129, 200}, Shape{5, 3, 7}, Shape{1},     Shape{3000}};

std::vector<Case> cases(void (*row)(const Problem&, Operands&, Stream&),
                        const std::vector<Shape>& of_shapes = shapes, int64_t row_gap = 5) {
  std::vector<Case> list;
  for (const Shape& shape : of_shapes) {
    for (int variant = 0; variant < 12; ++variant) {
      const bool is_f16 = variant >= 8;
      const DType half = is_f16 ? DType::f16 : DType::bf16;
      const bool has_gaps = shape.ndim() > 1 && (variant & (is_f16 ? 1 : 4)) != 0;
      const int64_t gap = has_gaps ? row_gap : 0;
      const Make x = {.dtype = (variant & 1) != 0 ? half : DType::f32, .gap = gap};
      const Make d = {
          .dtype = (variant & 2) != 0 ? half : DType::f32, .gap = 2 * gap, .exact = true};
      const Problem p = {shape, x, d};
      list.push_back({fmt::format("{} variant {}", shape.to_string(), variant),
                      [=](Operands& o, Stream& s) { row(p, o, s); }});
    }
  }
  return list;
}

TEST(UtilityTest, cpu_has_the_bits_of_the_reference) {
  for (auto* row : {fill, fill_zero, copy, accumulate, maximum, init_normal})
    expect_cpu_agrees(cases(row));
}

// Rows with gaps but aligned, with and without a partial last vector; many blocks; more rows than
// the height of a grid.
TEST(UtilityTest, cuda_has_the_bits_of_the_reference) {
  for (auto* row : {fill, fill_zero, copy, accumulate, maximum, init_normal}) {
    expect_cuda_agrees(cases(row));
    expect_cuda_agrees(
        cases(row, {Shape{40, 1024}, Shape{3, 3, 1000}, Shape{100003}, Shape{70000, 1}}, 16));
    expect_cuda_agrees(cases(row, {Shape{65, 1003}}, 5));
  }
}

TEST(UtilityTest, cuda_copies_and_adds_unaligned_elements) {
  std::vector<Case> list;
  for (const DType from : {DType::f32, DType::bf16, DType::f16}) {
    for (const DType to : {DType::f32, DType::bf16, DType::f16}) {
      if (base::size_of(from) == 2 && base::size_of(to) == 2 && from != to) continue;
      list.push_back({"from the second element", [=](Operands& operands, Stream& stream) {
                        const Tensor x = operands.input({2001}, {.dtype = from});
                        const Tensor d = operands.updated({2001}, {.dtype = to, .exact = true});
                        const Tensor part = d.slice_rows(1, 2000);
                        ops::accumulate(stream, {.x = x.slice_rows(0, 2000), .d = part});
                        ops::copy(stream, {.x = x.slice_rows(1, 7), .d = d.slice_rows(9, 7)});
                        ops::fill(stream, {.d = d.slice_rows(99, 13), .value = 7});
                      }});
    }
  }
  expect_cuda_agrees(list);
}

TEST(UtilityTest, bits_do_not_depend_on_threads) {
  for (auto* row : {fill, fill_zero, copy, accumulate, maximum, init_normal}) {
    expect_bits_do_not_depend_on_threads(cases(row));
  }
}

// A shard generates the elements that the whole tensor has in its range.
TEST(UtilityTest, a_shard_generates_its_part_of_the_whole_tensor) {
  for_each_table([](Stream& stream) {
    Operands operands(1);
    const Tensor whole = operands.result({12, 10}), part = operands.result({5, 4});
    ops::init_normal(stream, {.d = whole, .key = 9, .global_row_stride = 10, .std_dev = 1});
    ops::init_normal(
        stream, {.d = part, .key = 9, .first = 3 * 10 + 2, .global_row_stride = 10, .std_dev = 1});
    EXPECT_EQ(values_of(part), values_of(whole.slice_rows(3, 5).slice_cols(2, 4)));
  });
}

TEST(UtilityTest, copy_rounds_to_nearest_even) {
  for_each_table([](Stream& stream) {
    Operands operands(1);
    const double points[] = {1 + 0x1p-8, 1 + 3 * 0x1p-8, 1 + 0x1p-8 + 0x1p-20, -0x1p-130, 3e38};
    const Tensor x = operands.input(
        {1, 5}, {}, [&](int64_t, int64_t c) { return points[static_cast<size_t>(c)]; });
    const Tensor d = operands.result({1, 5}, {.dtype = DType::bf16});
    ops::copy(stream, {.x = x, .d = d});
    const std::vector<double> found = values_of(d);
    EXPECT_EQ(found[0], 1);
    EXPECT_EQ(found[1], 1 + 0x1p-6);
    EXPECT_EQ(found[2], 1 + 0x1p-7);
    EXPECT_EQ(found[3], -0x1p-130);
    EXPECT_NEAR(found[4], 3e38, 3e38 * 0x1p-8);
  });
}

}  // namespace
}  // namespace trireme::kernels::utility_test
