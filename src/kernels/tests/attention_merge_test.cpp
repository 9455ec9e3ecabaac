// SPDX-License-Identifier: Apache-2.0
// attention_merge and gather_rows.
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "kernels/ops.h"
#include "kernels/tests/op_test.h"

namespace trireme::kernels::attention_merge_test {
namespace {

struct HeadShape {
  int64_t count, size;
};

void merge(int64_t rows, const HeadShape& heads, DType dtype, Operands& operands, Stream& stream) {
  // Every eighth lse is -infinity on one side, and one in 64 on both.
  const auto lse_value = [](int64_t step) {
    return [step](int64_t h, int64_t t) {
      const int64_t at = h * 31 + t;
      if (at % (8 * step) < step) return -std::numeric_limits<double>::infinity();
      return 40 * static_cast<double>(
                      base::rng_normal(static_cast<uint64_t>(step), static_cast<uint64_t>(at), 1));
    };
  };
  const Shape shape = {rows, heads.count, heads.size}, lse_shape = {heads.count, rows};
  const Tensor part = operands.input(shape, {.dtype = dtype, .gap = 4});
  const Tensor part_lse = operands.input(lse_shape, {}, lse_value(1));
  const Tensor o = operands.updated(shape, {.gap = 4});
  const Tensor lse = operands.updated(lse_shape, {.floor = 1});
  const Tensor start = operands.input(lse_shape, {}, lse_value(8));
  ops::copy(stream, {.x = start, .d = lse});
  ops::attention_merge(stream, {.part = part, .part_lse = part_lse, .o = o, .lse = lse});
}

std::vector<Case> merge_cases() {
  std::vector<Case> list;
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    for (const HeadShape& heads : {HeadShape{1, 4}, {3, 40}, {4, 128}}) {
      list.push_back({"merge", [=](Operands& o, Stream& s) { merge(67, heads, dtype, o, s); }});
    }
  }
  return list;
}

TEST(AttentionMergeTest, cpu_agrees_with_the_reference) { expect_cpu_agrees(merge_cases()); }

TEST(AttentionMergeTest, cuda_agrees_with_the_reference) { expect_cuda_agrees(merge_cases()); }

// Attention over three sets of keys, merged from the left and from the right.
TEST(AttentionMergeTest, order_does_not_matter) {
  for_each_machine([](Machine& machine) {
    Stream& stream = *machine.stream;
    Operands operands(1, machine);
    const Shape shape = {50, 3, 8}, lse_shape = {3, 50};
    struct Side {
      Tensor o, lse;
    };
    const auto make = [&](double shift) -> Side {
      const Tensor o = operands.input(shape);
      return {o, operands.input(lse_shape, {}, [=](int64_t h, int64_t t) {
                const auto at = static_cast<uint64_t>(h * 50 + t);
                return shift + 3 * static_cast<double>(base::rng_normal(7, at, 1));
              })};
    };
    const Side a = make(0), b = make(15), c = make(-5);
    const auto merged = [&](const Side& first, const Side& second) -> Side {
      const Side sum = {operands.result(shape), operands.result(lse_shape)};
      ops::copy(stream, {.x = first.o, .d = sum.o});
      ops::copy(stream, {.x = first.lse, .d = sum.lse});
      ops::attention_merge(stream,
                           {.part = second.o, .part_lse = second.lse, .o = sum.o, .lse = sum.lse});
      return sum;
    };
    const Side left = merged(merged(a, b), c), right = merged(a, merged(c, b));
    stream.synchronize();
    for (const auto& [x, y] : {std::pair{left.o, right.o}, {left.lse, right.lse}}) {
      const std::vector<double> found = values_of(x), expected = values_of(y);
      for (size_t i = 0; i < found.size(); ++i) {
        // Two fp32 roundings of values up to 30.
        EXPECT_NEAR(found[i], expected[i], 4e-6) << "element " << i;
      }
    }
  });
}

// Sides with lse far apart: exp and log neither overflow nor give NaN, and nothing is lost.
TEST(AttentionMergeTest, distant_sides_keep_the_higher) {
  for_each_machine([](Machine& machine) {
    Operands operands(1, machine);
    const auto constant = [&](const Shape& shape, double value) {
      return operands.input(shape, {}, [value](int64_t, int64_t) { return value; });
    };
    for (const double distance : {-1e30, -200.0, 200.0, 1e30}) {
      const Tensor part = constant({1, 1, 4}, 2), part_lse = constant({1, 1}, distance);
      const Tensor o = constant({1, 1, 4}, 3), lse = constant({1, 1}, 0);
      ops::attention_merge(*machine.stream,
                           {.part = part, .part_lse = part_lse, .o = o, .lse = lse});
      machine.stream->synchronize();
      const double expected = static_cast<double>(static_cast<float>(std::max(distance, 0.0)));
      EXPECT_EQ(values_of(o)[0], distance > 0 ? 2 : 3);
      EXPECT_EQ(values_of(lse)[0], expected);
    }
  });
}

std::vector<Case> gather_cases() {
  std::vector<Case> list;
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    list.push_back(
        {"gather", [=](Operands& operands, Stream& stream) {
           const Tensor x = operands.input({9, 24}, {.dtype = dtype, .gap = 8});
           const Tensor rows = operands.integers({8, 0, 3, 3, 7});
           const Tensor d = operands.result({5, 24}, {.dtype = dtype, .gap = 16, .exact = true});
           ops::gather_rows(stream, {.x = x, .rows = rows, .d = d});
         }});
    list.push_back({"gather, then scatter", [=](Operands& operands, Stream& stream) {
                      const Tensor x = operands.input({6, 33}, {.dtype = dtype});
                      const Tensor rows = operands.integers({5, 2, 0, 1, 4, 3});
                      const Make make = {.dtype = dtype, .exact = true};
                      const Tensor d = operands.result({6, 33}, make);
                      const Tensor again = operands.result({6, 33}, make);
                      ops::gather_rows(stream, {.x = x, .rows = rows, .d = d});
                      ops::scatter_rows(stream, {.x = d, .rows = rows, .d = again});
                    }});
  }
  return list;
}

TEST(GatherRowsTest, cpu_agrees_with_the_reference) { expect_cpu_agrees(gather_cases()); }

TEST(GatherRowsTest, cuda_agrees_with_the_reference) { expect_cuda_agrees(gather_cases()); }

}  // namespace
}  // namespace trireme::kernels::attention_merge_test
