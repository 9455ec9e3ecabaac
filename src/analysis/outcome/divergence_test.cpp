// SPDX-License-Identifier: Apache-2.0
#include "analysis/outcome/divergence.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

namespace trireme::analysis {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

Divergence with_losses(const std::vector<double>& losses, std::optional<double> start = {}) {
  Divergence divergence(start);
  for (size_t i = 0; i < losses.size(); ++i) {
    divergence.add(static_cast<int64_t>(i) + 1, losses[i], false);
  }
  return divergence;
}

// A loss that falls from 5.5 to 3, then `last` for so many steps.
std::vector<double> falling_then(double last, int steps) {
  std::vector<double> losses;
  for (int i = 0; i < 40; ++i) losses.push_back(3 + 2.5 * std::exp(-i / 10.0));
  losses.insert(losses.end(), static_cast<size_t>(steps), last);
  return losses;
}

TEST(DivergenceTest, a_loss_far_above_its_start_has_diverged) {
  const auto found = with_losses(falling_then(6.6e8, 7)).judge(true);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->first_step, 41);
  EXPECT_EQ(found->text, "the loss is about 6.6e+08, at the start it was 5.5");
  EXPECT_TRUE(with_losses(falling_then(11.1, 10)).judge(true));
  EXPECT_TRUE(with_losses(falling_then(infinity, 6)).judge(true));
  EXPECT_EQ(with_losses(falling_then(std::nan(""), 6)).judge(true)->text,
            "the loss is not finite, at the start it was 5.5");
}

TEST(DivergenceTest, a_loss_that_learns_or_recovers_has_not) {
  EXPECT_FALSE(with_losses(falling_then(3, 1)).judge(true));
  EXPECT_FALSE(with_losses(falling_then(7.5, 10)).judge(true)) << "a change of the data";
  EXPECT_FALSE(with_losses(falling_then(100, 4)).judge(true)) << "a spike";
  std::vector<double> recovered = falling_then(1e6, 20);
  recovered.insert(recovered.end(), 10, 4.0);
  EXPECT_FALSE(with_losses(recovered).judge(false));
}

TEST(DivergenceTest, the_start_of_the_run_counts_not_that_of_the_attempt) {
  const std::vector<double> losses(12, 1e8);
  EXPECT_FALSE(with_losses(losses).judge(true));
  EXPECT_TRUE(with_losses(losses, 5.5).judge(true));
}

TEST(DivergenceTest, few_steps_are_judged_at_their_end_only) {
  const Divergence divergence = with_losses({5.5, 9, 12, 14});
  EXPECT_FALSE(divergence.judge(true));
  EXPECT_TRUE(divergence.judge(false));
  EXPECT_FALSE(with_losses({5.5}).judge(false));
  EXPECT_FALSE(Divergence().judge(false)) << "no step";
}

TEST(DivergenceTest, half_of_the_steps_skipped_has_diverged) {
  const auto skipped = [](int of, int every, int first) {
    Divergence divergence;
    for (int step = 1; step <= of; ++step) {
      divergence.add(step, 5, step >= first && step % every == 0);
    }
    return divergence;
  };
  EXPECT_EQ(skipped(40, 1, 5).judge(true)->text,
            "36 of 40 steps were skipped because the gradient norm was not finite or far above its "
            "running mean");
  EXPECT_EQ(skipped(40, 1, 5).judge(true)->first_step, 5);
  EXPECT_TRUE(skipped(40, 2, 1).judge(true));
  EXPECT_FALSE(skipped(40, 3, 1).judge(true));
  EXPECT_TRUE(skipped(5000, 1, 4950).judge(true)) << "of the last 100";
  EXPECT_FALSE(skipped(5000, 1, 4960).judge(true));
  // A few steps diverge if nearly all are skipped.
  EXPECT_TRUE(skipped(4, 1, 1).judge(false));
  EXPECT_FALSE(skipped(4, 2, 1).judge(false));
}

TEST(DivergenceTest, steps_that_are_repeated_count_once) {
  Divergence divergence = with_losses(falling_then(1e8, 10));
  ASSERT_TRUE(divergence.judge(true));
  for (int64_t step = 41; step <= 50; ++step) divergence.add(step, 3, step < 44);
  EXPECT_FALSE(divergence.judge(true));
  for (int64_t step = 1; step <= 12; ++step) divergence.add(step, 3, step <= 6);
  EXPECT_TRUE(divergence.judge(true));
}

}  // namespace
}  // namespace trireme::analysis
