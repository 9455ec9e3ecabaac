// SPDX-License-Identifier: Apache-2.0
#include "train/report/skip_log.h"

#include <gtest/gtest.h>

#include <limits>

#include "base/error.h"

namespace trireme::train {
namespace {

// `row`: the first step of the last row of skipped steps.
engine::StepReport report(int64_t skipped, int64_t in_a_row, int64_t row) {
  engine::StepReport r;
  r.was_skipped = in_a_row > 0;
  r.skipped = skipped;
  r.skipped_in_a_row = in_a_row;
  r.row_first = row;
  r.row_norm = 12;
  r.row_mean = 2;
  return r;
}

using Lines = std::vector<std::string>;
const std::string norm_is_high =
    " skipped: gradient norm 12 is 6 x its running mean 2; training.skip_norm_multiple = 5";

TEST(SkipLog, reports_where_a_row_of_skipped_steps_began_and_ended) {
  SkipLog log(5);
  EXPECT_EQ(log.add(1, report(0, 0, 0)), Lines{});
  EXPECT_EQ(log.add(10, report(2, 2, 9)), Lines{"guard     step 9" + norm_is_high});
  EXPECT_EQ(log.newly_skipped(), 2);
  EXPECT_EQ(log.add(12, report(3, 0, 9)),
            Lines{"guard     steps 9 to 11 were skipped; step 12 is applied"});
  EXPECT_EQ(log.newly_skipped(), 1);
  EXPECT_EQ(log.add(13, report(3, 0, 9)), Lines{});
  EXPECT_EQ(log.attempt_skipped(), 3);
}

TEST(SkipLog, a_row_between_two_logged_steps_gives_both_lines) {
  SkipLog log(5);
  EXPECT_EQ(log.add(1, report(0, 0, 0)), Lines{});
  engine::StepReport after = report(1, 0, 7);
  after.row_norm = std::numeric_limits<double>::infinity();
  EXPECT_EQ(log.add(10, after), (Lines{"guard     step 7 skipped: the gradient norm is not finite",
                                       "guard     step 7 was skipped; step 10 is applied"}));
}

TEST(SkipLog, steps_that_earlier_attempts_skipped_are_not_reported_again) {
  SkipLog log(5);
  EXPECT_EQ(log.add(41, report(4, 0, 30)), Lines{});
  EXPECT_EQ(log.attempt_skipped(), 0);
  EXPECT_EQ(log.newly_skipped(), 0);
  SkipLog skips_its_first(5);
  EXPECT_EQ(skips_its_first.add(41, report(5, 1, 41)), Lines{"guard     step 41" + norm_is_high});
  EXPECT_EQ(skips_its_first.attempt_skipped(), 1);
}

TEST(SkipLog, a_hundred_skipped_steps_in_a_row_end_the_run) {
  const SkipLog log(5);
  EXPECT_NO_THROW(log.check(99, report(99, 99, 1)));
  EXPECT_THROW(log.check(100, report(100, 100, 1)), base::Diverged);
}

TEST(SkipLog, fifty_steps_in_a_row_that_are_not_finite_end_a_run_with_a_loss_scale) {
  SkipLog log(5);
  engine::StepReport not_finite = report(1, 1, 3);
  not_finite.row_norm = std::numeric_limits<double>::infinity();
  not_finite.grad_norm = std::numeric_limits<float>::infinity();
  not_finite.loss_scale = 65536;
  not_finite.next_loss_scale = 32768;
  EXPECT_EQ(log.add(3, not_finite),
            Lines{"guard     step 3 skipped: the gradient norm is not finite; the loss scale is "
                  "32768"});
  not_finite.skipped_in_a_row = 49;
  EXPECT_NO_THROW(log.check(51, not_finite));
  not_finite.skipped_in_a_row = 50;
  not_finite.loss_scale = 1;
  try {
    log.check(52, not_finite);
    FAIL() << "the run goes on";
  } catch (const base::Error& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find("50 steps in a row"), std::string::npos) << text;
    EXPECT_NE(text.find("a loss scale of 1"), std::string::npos) << text;
    EXPECT_NE(text.find("precision.recipe = \"bf16\""), std::string::npos) << text;
  }
  not_finite.grad_norm = 3;  // the guard's limit is the other one
  EXPECT_NO_THROW(log.check(52, not_finite));
}

}  // namespace
}  // namespace trireme::train
