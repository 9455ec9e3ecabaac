// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "base/rng.h"
#include "kernels/ops.h"
#include "kernels/step_records.h"
#include "kernels/tests/op_test.h"
#include "kernels/wide_sum.h"

namespace trireme::kernels::wide_sum_test {
namespace {

bool equal(WideSum a, WideSum b) {
  normalise(a);
  normalise(b);
  return std::memcmp(&a, &b, sizeof a) == 0;
}

WideSum& squares_at(const Tensor& sum) { return *reinterpret_cast<WideSum*>(sum.data); }

// Merges the sums of ranks, each with its own samples.
StepSums merged_of(const std::vector<StepSums>& parts, int64_t ranks) {
  return merged(Records{reinterpret_cast<const std::byte*>(parts.data()), sizeof(StepSums), ranks});
}

TEST(WideSumTest, one_number_is_returned_exactly) {
  for (const double value : {0.0, 1.0, 1.0 / 3, 12345.678, 0x1p-128, 0x1.8p-127, 0x1p-76,
                             0x1.fffffffffffffp126, 0x1.123456789abcdp31, 0x1.fffffffffffffp-76}) {
    WideSum sum = {};
    add_block_sum(sum, value);
    EXPECT_EQ(to_double(sum), value);
    EXPECT_EQ(sum.not_finite, 0);
  }
}

TEST(WideSumTest, bits_below_the_lowest_are_dropped) {
  WideSum sum = {};
  add_block_sum(sum, 0x1.fp-129);
  add_block_sum(sum, 1e-300);
  add_block_sum(sum, std::numeric_limits<double>::denorm_min());
  EXPECT_EQ(to_double(sum), 0);
  add_block_sum(sum, 0x1.ffp-126);  // 7.98 units
  EXPECT_EQ(to_double(sum), 0x1.cp-126);
}

TEST(WideSumTest, values_out_of_range_are_counted) {
  WideSum sum = {};
  add_block_sum(sum, 1);
  add_block_sum(sum, 0x1p127);
  add_block_sum(sum, std::numeric_limits<double>::infinity());
  add_block_sum(sum, std::numeric_limits<double>::quiet_NaN());
  EXPECT_EQ(sum.not_finite, 3);
  EXPECT_EQ(to_double(sum), std::numeric_limits<double>::infinity());
}

TEST(WideSumTest, the_order_of_additions_does_not_matter) {
  std::vector<double> values;
  for (uint64_t i = 0; i < 1000; ++i) {
    values.push_back(std::ldexp(1 + base::rng_uniform(1, i),
                                static_cast<int>(base::rng_below(2, i, 200)) - 120));
  }
  WideSum forward = {}, backward = {}, parts[2] = {};
  for (size_t i = 0; i < values.size(); ++i) {
    add_block_sum(forward, values[i]);
    add_block_sum(backward, values[values.size() - 1 - i]);
    add_block_sum(parts[i % 2], values[i]);
  }
  normalise(parts[0]);
  for (int i = 0; i < WideSum::limbs; ++i) parts[1].limb[i] += parts[0].limb[i];
  EXPECT_TRUE(equal(forward, backward));
  EXPECT_TRUE(equal(forward, parts[1]));
  EXPECT_EQ(to_double(forward), to_double(parts[1]));
}

TEST(WideSumTest, a_limb_holds_many_additions) {
  WideSum sum = {};
  for (int i = 0; i < 1000000; ++i) add_block_sum(sum, 0x1.fffffffffffffp0);
  EXPECT_NEAR(to_double(sum), 2e6, 1e-6);
}

// Each rank may add 2^31 block sums before it carries, so its limbs approach 2^63.
TEST(WideSumTest, full_limbs_of_many_ranks_add_up_exactly) {
  constexpr int ranks = 1024;
  constexpr int64_t full = int64_t{1} << 62;
  for (int limb = 0; limb + 1 < WideSum::limbs; ++limb) {
    std::vector<StepSums> parts(ranks, StepSums{});
    for (StepSums& part : parts) part.squares.limb[limb] = full;
    const WideSum sum = merged_of(parts, ranks).squares;
    // 2^10 ranks times 2^62 units: a power of two, which fp64 represents exactly.
    EXPECT_EQ(to_double(sum), std::ldexp(1.0, 10 + 62 + 32 * limb - 128)) << limb;
    EXPECT_EQ(sum.not_finite, 0);
  }
  // One more unit in the lowest limb of a single rank is not lost.
  std::vector<StepSums> parts(ranks, StepSums{});
  for (StepSums& part : parts) part.squares.limb[0] = full;
  parts[7].squares.limb[0] += 1;
  WideSum sum = merged_of(parts, ranks).squares;
  normalise(sum);
  EXPECT_EQ(sum.limb[0], 1);
  EXPECT_EQ(sum.limb[2], 1 << (10 + 62 - 64));
}

TEST(WideSumTest, a_total_beyond_the_highest_limb_is_not_finite) {
  std::vector<StepSums> parts(3, StepSums{});
  for (StepSums& part : parts) part.squares.limb[WideSum::limbs - 1] = int64_t{1} << 61;
  EXPECT_LT(to_double(merged_of(parts, 1).squares), std::numeric_limits<double>::infinity());
  EXPECT_EQ(to_double(merged_of(parts, 3).squares), std::numeric_limits<double>::infinity());
}

void sum_squares(int64_t elements, const Make& make, Operands& operands, Stream& stream) {
  const Tensor x = operands.input({elements}, make);
  WideSum earlier = {};
  earlier.limb[4] = 7;
  ops::sum_squares(stream, {.x = x, .squares = operands.squares(earlier)});
}

std::vector<Case> cases() {
  std::vector<Case> list;
  for (const int64_t elements : {1, 127, 128, 129, 1000, 20000}) {
    for (const DType dtype : {DType::f32, DType::bf16}) {
      for (const float size : {1.0F, 1e-12F, 1e15F}) {
        const Make make = {.dtype = dtype, .size = size};
        list.push_back({std::to_string(elements) + " elements",
                        [=](Operands& o, Stream& s) { sum_squares(elements, make, o, s); }});
      }
    }
  }
  return list;
}

// Many tiles, a partial last one, and elements that are not aligned to vectors.
std::vector<Case> large_cases() {
  std::vector<Case> list;
  for (const int64_t elements : {4096, 8192, 8193, 300000, 1 << 20}) {
    for (const DType dtype : {DType::f32, DType::bf16}) {
      const auto run = [=](Operands& operands, Stream& stream) {
        const Tensor x = operands.input({elements + 1}, {.dtype = dtype, .size = 1e-3F});
        const Tensor sums = operands.squares();
        ops::sum_squares(stream, {.x = x.slice_rows(0, elements), .squares = sums});
        ops::sum_squares(stream, {.x = x.slice_rows(1, elements), .squares = sums});
      };
      list.push_back({std::to_string(elements) + " elements", run});
    }
  }
  return list;
}

TEST(SumSquaresTest, cuda_has_the_bits_of_the_reference) {
  expect_cuda_agrees(cases());
  expect_cuda_agrees(large_cases());
  const auto with_infinity = [](Operands& operands, Stream& stream) {
    const Tensor x = operands.input({5 * 128}, {}, [](int64_t i, int64_t) {
      if (i == 3) return std::numeric_limits<double>::quiet_NaN();
      if (i == 130) return std::numeric_limits<double>::infinity();
      return i == 300 || i == 301 ? 2e19 : 1.0;
    });
    ops::sum_squares(stream, {.x = x, .squares = operands.squares()});
  };
  expect_cuda_agrees({{"not finite", with_infinity}});
}

TEST(SumSquaresTest, cpu_has_the_bits_of_the_reference) { expect_cpu_agrees(cases()); }

TEST(SumSquaresTest, bits_do_not_depend_on_threads) {
  expect_bits_do_not_depend_on_threads(cases());
}

TEST(SumSquaresTest, is_the_sum_of_squares) {
  for_each_table([](Stream& stream) {
    Operands operands(4);
    const Tensor x = operands.input({5000}), sums = operands.squares();
    ops::sum_squares(stream, {.x = x, .squares = sums});
    double expected = 0;
    for (const double value : values_of(x)) expected += value * value;
    EXPECT_NEAR(to_double(squares_at(sums)), expected, 1e-12 * expected);  // fp64 sums of 5000
  });
}

TEST(SumSquaresTest, a_cut_at_a_multiple_of_the_block_changes_no_bit) {
  for_each_table([](Stream& stream) {
    for (const DType dtype : {DType::f32, DType::bf16}) {
      Operands operands(5);
      const Tensor x = operands.input({3001}, {.dtype = dtype, .size = 1e-3F});
      const Tensor whole = operands.squares(), cut = operands.squares();
      ops::sum_squares(stream, {.x = x, .squares = whole});
      for (int64_t at = 0; at < 3001; at += 5 * WideSum::block_elements) {
        const int64_t count = std::min(int64_t{5 * WideSum::block_elements}, 3001 - at);
        ops::sum_squares(stream, {.x = x.slice_rows(at, count), .squares = cut});
      }
      EXPECT_TRUE(equal(squares_at(whole), squares_at(cut)));
    }
  });
}

TEST(SumSquaresTest, blocks_that_are_not_finite_are_counted) {
  for_each_table([](Stream& stream) {
    Operands operands(6);
    const Tensor x = operands.input({5 * 128}, {}, [](int64_t i, int64_t) {
      if (i == 3) return std::numeric_limits<double>::quiet_NaN();
      if (i == 130) return std::numeric_limits<double>::infinity();
      if (i == 300 || i == 301) return 2e19;  // squares above 2^127
      return 1.0;
    });
    const Tensor sums = operands.squares();
    ops::sum_squares(stream, {.x = x, .squares = sums});
    EXPECT_EQ(squares_at(sums).not_finite, 3);
  });
}

}  // namespace
}  // namespace trireme::kernels::wide_sum_test
