// SPDX-License-Identifier: Apache-2.0
#include "train/record/steps/repeated_steps.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace trireme::train {
namespace {

constexpr RepeatedSteps::Result result{
    .loss = 2.5, .grad_norm = 0.5F, .tokens = 64, .samples = 0x12};

TEST(RepeatedStepsTest, the_same_bits_are_no_finding) {
  RepeatedSteps steps(true);
  for (int round = 0; round < 2; ++round) {
    for (int64_t step = 3; step < 9; ++step) EXPECT_FALSE(steps.add(step, result));
  }
  RepeatedSteps::Result lost = result;
  lost.loss = std::numeric_limits<double>::quiet_NaN();
  EXPECT_FALSE(steps.add(20, lost));
  EXPECT_FALSE(steps.add(20, lost));
}

TEST(RepeatedStepsTest, one_other_bit_of_loss_or_norm_is_a_finding) {
  for (const bool in_loss : {true, false}) {
    RepeatedSteps steps(true);
    EXPECT_FALSE(steps.add(3, result));
    RepeatedSteps::Result other = result;
    if (in_loss) {
      other.loss = std::nextafter(other.loss, 3);
    } else {
      other.grad_norm = std::nextafter(other.grad_norm, 3.0F);
    }
    const auto found = steps.add(3, other);
    ASSERT_TRUE(found);
    EXPECT_TRUE(found->text.starts_with("step 3 was repeated with another loss: loss 2.5"))
        << found->text;
    EXPECT_TRUE(found->text.ends_with("(corruption?)")) << found->text;
    EXPECT_FALSE(found->is_in_samples);
  }
}

TEST(RepeatedStepsTest, other_tokens_are_a_finding) {
  RepeatedSteps steps(false);
  EXPECT_FALSE(steps.add(3, result));
  RepeatedSteps::Result other = result;
  other.tokens = 63;
  const auto found = steps.add(3, other);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->text,
            "step 3 was repeated with another number of tokens: 63 tokens, before 64 "
            "(corruption?)");
}

// Two samples may have as many labels, and without a fixed order almost the same loss.
TEST(RepeatedStepsTest, other_samples_are_a_finding_even_if_the_loss_is_the_same) {
  for (const bool is_exact : {true, false}) {
    RepeatedSteps steps(is_exact);
    EXPECT_FALSE(steps.add(3, result));
    RepeatedSteps::Result other = result;
    other.samples = 0xabc;
    const auto found = steps.add(3, other);
    ASSERT_TRUE(found);
    EXPECT_EQ(found->text,
              "step 3 was repeated with other samples: their hash is 0000000000000abc, before "
              "0000000000000012 (corruption?)");
    EXPECT_TRUE(found->is_in_samples);
  }
}

TEST(RepeatedStepsTest, samples_that_are_not_known_are_not_compared) {
  RepeatedSteps steps(true);
  EXPECT_FALSE(steps.add(3, result));
  RepeatedSteps::Result unknown = result;
  unknown.samples.reset();
  EXPECT_FALSE(steps.add(3, unknown));
}

TEST(RepeatedStepsTest, without_a_fixed_order_losses_may_differ_a_little) {
  RepeatedSteps steps(false);
  EXPECT_FALSE(steps.add(3, result));
  RepeatedSteps::Result other = result;
  other.loss *= 1 + 0.9 * RepeatedSteps::tolerance;
  other.grad_norm *= 2;
  EXPECT_FALSE(steps.add(3, other));
  other.loss *= 1 + RepeatedSteps::tolerance;
  EXPECT_TRUE(steps.add(3, other));
}

TEST(RepeatedStepsTest, one_finding_for_the_steps_that_follow) {
  RepeatedSteps steps(true);
  for (int64_t step = 1; step < 5; ++step) EXPECT_FALSE(steps.add(step, result));
  RepeatedSteps::Result other = result;
  other.loss = 3;
  EXPECT_TRUE(steps.add(2, other));
  EXPECT_FALSE(steps.add(3, other));
  steps.begin();
  EXPECT_TRUE(steps.add(3, other));
}

TEST(RepeatedStepsTest, old_steps_are_forgotten) {
  RepeatedSteps steps(true);
  const auto many = static_cast<int64_t>(RepeatedSteps::max_steps);
  for (int64_t step = 1; step <= many + 1; ++step) {
    EXPECT_FALSE(steps.add(step, result));
  }
  RepeatedSteps::Result other = result;
  other.loss = 3;
  EXPECT_TRUE(steps.add(many, other));
  steps.begin();
  EXPECT_FALSE(steps.add(1, other));  // it was dropped
}

}  // namespace
}  // namespace trireme::train
