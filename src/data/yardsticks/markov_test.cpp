// SPDX-License-Identifier: Apache-2.0
#include "data/yardsticks/markov.h"

#include <gtest/gtest.h>

#include <cmath>

namespace trireme::data {
namespace {

TEST(MarkovTest, a_long_sample_has_the_stated_entropy) {
  for (const int order : {0, 1, 2}) {
    const MarkovSource source(3, 8, order, 4.0);
    std::vector<int32_t> tokens(200000);
    source.generate(1, tokens);
    double sum = 0, squares = 0;
    const auto n = static_cast<double>(tokens.size() - static_cast<size_t>(order));
    for (size_t i = static_cast<size_t>(order); i < tokens.size(); ++i) {
      const std::span<const int32_t> context(&tokens[i - static_cast<size_t>(order)],
                                             static_cast<size_t>(order));
      const double loss = -source.log_probability(context, tokens[i]);
      sum += loss;
      squares += loss * loss;
    }
    const double mean = sum / n, deviation = std::sqrt(squares / n - mean * mean);
    // Five standard errors, doubled because neighbouring tokens are not independent.
    EXPECT_NEAR(mean, source.entropy_rate(), 10 * deviation / std::sqrt(n)) << "order " << order;
  }
}

TEST(MarkovTest, flat_rows_have_the_entropy_of_the_uniform_distribution) {
  EXPECT_NEAR(MarkovSource(1, 16, 2, 0).entropy_rate(), std::log(16.0), 1e-12);
}

TEST(MarkovTest, streams_are_repeatable_and_differ) {
  const MarkovSource source(5, 10, 2, 3.0);
  std::vector<int32_t> a(100), b(100), c(50);
  source.generate(1, a);
  source.generate(2, b);
  source.generate(1, c);
  EXPECT_NE(a, b);
  EXPECT_TRUE(std::equal(c.begin(), c.end(), a.begin()));
}

}  // namespace
}  // namespace trireme::data
