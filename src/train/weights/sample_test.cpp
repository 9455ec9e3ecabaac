// SPDX-License-Identifier: Apache-2.0
#include "train/weights/sample.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "base/error.h"

namespace trireme::train {
namespace {

const std::vector<float> logits = {1.0F, 3.0F, 2.0F, -1.0F};

std::vector<double> frequencies(const SampleOptions& o) {
  constexpr int draws = 20000;
  std::vector<double> counts(logits.size());
  for (int i = 0; i < draws; ++i) {
    counts[static_cast<size_t>(sample(logits, o, static_cast<uint64_t>(i)))] += 1.0 / draws;
  }
  return counts;
}

TEST(SampleTest, temperature_zero_takes_the_most_likely) {
  for (uint64_t draw = 0; draw < 20; ++draw) {
    EXPECT_EQ(sample(logits, {.temperature = 0}, draw), 1);
  }
}

TEST(SampleTest, frequencies_follow_the_softmax) {
  const std::vector<double> found = frequencies({.temperature = 2});
  double sum = 0;
  for (const float l : logits) sum += std::exp(static_cast<double>(l) / 2);
  for (size_t i = 0; i < logits.size(); ++i) {
    const double p = std::exp(static_cast<double>(logits[i]) / 2) / sum;
    EXPECT_NEAR(found[i], p, 5 * std::sqrt(p * (1 - p) / 20000));
  }
}

TEST(SampleTest, top_k_and_top_p_cut_the_tail) {
  const std::vector<double> k = frequencies({.top_k = 2});
  EXPECT_EQ(k[0] + k[3], 0);
  EXPECT_GT(k[2], 0);
  // Probabilities are 0.089, 0.657, 0.242, 0.012: the most likely alone has less than 0.7.
  const std::vector<double> p = frequencies({.top_p = 0.7});
  EXPECT_EQ(p[0] + p[3], 0);
  EXPECT_GT(p[2], 0);
  EXPECT_NEAR(frequencies({.top_p = 0.5})[1], 1, 1e-9);
}

// Literal tokens, so that another machine or build has to agree, and in another order of draws.
TEST(SampleTest, tokens_depend_on_seed_and_draw_alone) {
  const SampleOptions o{.temperature = 1.5, .seed = 9};
  const std::vector<int32_t> expected = {1, 2, 1, 1, 2, 0, 1, 1, 1, 0, 1, 2, 2, 0, 1, 0};
  for (size_t draw = expected.size(); draw-- > 0;) {
    EXPECT_EQ(sample(logits, o, draw), expected[draw]) << draw;
  }
  SampleOptions other = o;
  other.seed = 10;
  int different = 0;
  for (uint64_t draw = 0; draw < 50; ++draw) {
    different += sample(logits, o, draw) != sample(logits, other, draw) ? 1 : 0;
  }
  EXPECT_GT(different, 5);
}

TEST(SampleTest, impossible_options_are_refused) {
  EXPECT_THROW(check({.temperature = -1}), base::ConfigError);
  EXPECT_THROW(check({.temperature = std::nan("")}), base::ConfigError);
  EXPECT_THROW(check({.top_k = -1}), base::ConfigError);
  EXPECT_THROW(check({.top_p = 0}), base::ConfigError);
  EXPECT_THROW(check({.top_p = 1.1}), base::ConfigError);
}

}  // namespace
}  // namespace trireme::train
