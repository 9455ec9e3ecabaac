// SPDX-License-Identifier: Apache-2.0
#include "analysis/statistics.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

#include "analysis/rules/rule.h"

namespace trireme::analysis {
namespace {

constexpr double nan_value = std::numeric_limits<double>::quiet_NaN();

TEST(StatisticsTest, medians_leave_nan_out) {
  EXPECT_EQ(median({3, nan_value, 1, 2}), 2);
  EXPECT_EQ(median({4, 1, 2, 3}), 2.5);
  EXPECT_TRUE(std::isnan(median({nan_value})));
  EXPECT_TRUE(std::isnan(median({})));
  EXPECT_EQ(mean({1, nan_value, 3}), 2);
}

TEST(StatisticsTest, a_range_persists_by_k_of_n_windows) {
  const std::vector<double> values = {0, 0, 1, 1, 0, 1, 1, 1, 0, 0, 0, 0};
  const auto range = persistent_range(values, 0.5, {3, 4});
  ASSERT_TRUE(range);
  EXPECT_EQ(range->begin, 2U);
  EXPECT_EQ(range->end, 8U);
  EXPECT_FALSE(persistent_range(values, 0.5, {5, 5}));
  EXPECT_FALSE(persistent_range({1, 1}, 0.5, {3, 3})) << "too few windows";
  EXPECT_FALSE(persistent_range({nan_value, nan_value, nan_value}, 0.5, {2, 3}));
}

TEST(StatisticsTest, the_range_with_the_largest_sum_is_chosen) {
  const auto range = persistent_range({1, 1, 1, 0, 0, 0, 9, 9, 9, 0}, 0.5, {3, 3});
  ASSERT_TRUE(range);
  EXPECT_EQ(range->begin, 6U);
  EXPECT_EQ(range->end, 9U);
}

TEST(StatisticsTest, a_rise_is_found_at_its_window) {
  std::mt19937_64 random(7);
  std::normal_distribution<double> normal;
  for (size_t at = 4; at < 26; ++at) {
    std::vector<double> values;
    for (size_t i = 0; i < 30; ++i) values.push_back((i < at ? 1.0 : 1.3) + 0.02 * normal(random));
    const auto rise = find_rise(values, 1.1, 3);
    ASSERT_TRUE(rise) << at;
    EXPECT_EQ(rise->after_range.begin, at);
    EXPECT_NEAR(rise->before, 1.0, 0.03);
    EXPECT_NEAR(rise->after, 1.3, 0.03);
  }
}

TEST(StatisticsTest, noise_and_single_outliers_are_no_rise) {
  std::mt19937_64 random(8);
  std::normal_distribution<double> normal;
  for (int trial = 0; trial < 2000; ++trial) {
    std::vector<double> values;
    for (int i = 0; i < 30; ++i) values.push_back(1 + 0.05 * normal(random));
    values[static_cast<size_t>(trial % 30)] = 40;
    EXPECT_FALSE(find_rise(values, 1.1, 3)) << trial;
  }
}

}  // namespace
}  // namespace trireme::analysis
