// SPDX-License-Identifier: Apache-2.0
#include "plan/price/run_cost.h"

#include <gtest/gtest.h>

namespace trireme::plan {
namespace {

TEST(RunCost, days_hours_and_money_follow_from_the_steps) {
  // 10.5 steps of 3,600 s on 8 GPUs are rounded up to 11.
  const RunQuestion question{.tokens = 10500,
                             .step_tokens = 1000,
                             .step_seconds = 3600,
                             .gpus = 8,
                             .dollars_per_gpu_hour = 2.5};
  const RunCost cost = run_cost(question);
  EXPECT_EQ(cost.steps, 11);
  EXPECT_DOUBLE_EQ(cost.days, 11.0 / 24);
  EXPECT_DOUBLE_EQ(cost.gpu_hours, 88);
  EXPECT_DOUBLE_EQ(cost.dollars.value(), 220);
}

TEST(RunCost, without_a_price_there_is_no_money) {
  const RunCost cost =
      run_cost({.tokens = 1000, .step_tokens = 1000, .step_seconds = 1, .gpus = 1});
  EXPECT_EQ(cost.steps, 1);
  EXPECT_FALSE(cost.dollars.has_value());
}

TEST(RunCost, a_price_of_nothing_is_a_price) {
  const RunCost cost = run_cost({.tokens = 1000,
                                 .step_tokens = 1000,
                                 .step_seconds = 1,
                                 .gpus = 1,
                                 .dollars_per_gpu_hour = 0});
  EXPECT_EQ(cost.dollars, 0);
}

}  // namespace
}  // namespace trireme::plan
