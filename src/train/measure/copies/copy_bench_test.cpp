// SPDX-License-Identifier: Apache-2.0
#include "train/measure/copies/copy_bench.h"

#include <gtest/gtest.h>

#include <numeric>
#include <vector>

namespace trireme::train {
namespace {

MedianInterval interval_of_first(int count) {
  std::vector<double> values(static_cast<size_t>(count));
  std::iota(values.rbegin(), values.rend(), 1);  // descending: they are sorted
  return median_interval(values);
}

// The ranks of a table of confidence intervals for medians (Conover, Practical Nonparametric
// Statistics): of 10 values the second and the ninth one have 97.9 %, of 20 the sixth and the
// fifteenth 95.9 %.
TEST(MedianIntervalTest, has_the_ranks_of_the_binomial_distribution) {
  const struct {
    int values;
    double median, low, high;
  } cases[] = {{1, 1, 1, 1},   {2, 1.5, 1, 2},    {5, 3, 1, 5},      {6, 3.5, 1, 6},
               {8, 4.5, 1, 8}, {9, 5, 2, 8},      {10, 5.5, 2, 9},   {12, 6.5, 3, 10},
               {15, 8, 4, 12}, {20, 10.5, 6, 15}, {30, 15.5, 10, 21}};
  for (const auto& one : cases) {
    const MedianInterval found = interval_of_first(one.values);
    EXPECT_EQ(found.median, one.median) << one.values;
    EXPECT_EQ(found.low, one.low) << one.values;
    EXPECT_EQ(found.high, one.high) << one.values;
  }
}

}  // namespace
}  // namespace trireme::train
