// SPDX-License-Identifier: Apache-2.0
#include "board/series/pyramid.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

namespace trireme::board {
namespace {

Extent brute_force(const std::vector<double>& values, size_t begin, size_t end) {
  Extent sum;
  for (size_t i = begin; i < end; ++i) {
    if (!std::isfinite(values[i])) {
      ++sum.bad;
      continue;
    }
    sum.min = std::min(sum.min, values[i]);
    sum.max = std::max(sum.max, values[i]);
    sum.sum += values[i];
    ++sum.finite;
  }
  return sum;
}

void expect_equal(const Extent& a, const Extent& b) {
  ASSERT_EQ(a.min, b.min);
  ASSERT_EQ(a.max, b.max);
  ASSERT_EQ(a.finite, b.finite);
  ASSERT_EQ(a.bad, b.bad);
  // Sums of integers below 2^53 have no rounding.
  ASSERT_EQ(a.sum, b.sum);
}

TEST(PyramidTest, ten_thousand_random_series_have_the_extents_of_a_loop) {
  std::mt19937_64 random(20260101);
  const auto below = [&](size_t n) { return static_cast<size_t>(random() % n); };
  for (int round = 0; round < 10'000; ++round) {
    const size_t size = below(round % 100 == 0 ? 3000 : 150);
    std::vector<double> values;
    Pyramid pyramid;
    for (size_t i = 0; i < size; ++i) {
      const size_t kind = below(20);
      double value = static_cast<double>(below(2001)) - 1000;
      if (kind == 0) value = std::numeric_limits<double>::quiet_NaN();
      if (kind == 1) value = std::numeric_limits<double>::infinity();
      if (kind == 2) value = -std::numeric_limits<double>::infinity();
      values.push_back(value);
      pyramid.push_back(value);
    }
    if (round % 3 == 0 && size > 0) {
      const size_t first = below(size + 1);
      std::vector<double> tail(below(100));
      for (double& value : tail) value = static_cast<double>(below(100));
      values.resize(first);
      values.insert(values.end(), tail.begin(), tail.end());
      pyramid.replace_tail(first, tail);
    }
    ASSERT_EQ(pyramid.size(), values.size());
    for (int query = 0; query < 8; ++query) {
      const size_t end = below(values.size() + 1);
      const size_t begin = below(end + 1);
      expect_equal(pyramid.extent(begin, end), brute_force(values, begin, end));
    }
    expect_equal(pyramid.extent(0, values.size()), brute_force(values, 0, values.size()));
  }
}

}  // namespace
}  // namespace trireme::board
