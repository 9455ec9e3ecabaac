// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "base/error.h"
#include "optim/lr_schedule.h"

namespace trireme::optim {
namespace {

TEST(LrScheduleTest, warms_up_linearly_and_reaches_the_peak) {
  const LrSchedule s{.peak = 1.0, .warmup_steps = 4};
  EXPECT_DOUBLE_EQ(learning_rate(s, 0), 0.25);
  EXPECT_DOUBLE_EQ(learning_rate(s, 3), 1.0);
  EXPECT_DOUBLE_EQ(learning_rate(s, 1000), 1.0);
}

TEST(LrScheduleTest, linear_and_cosine_end_at_the_floor_and_stay_there) {
  for (const Decay decay : {Decay::linear, Decay::cosine}) {
    const LrSchedule s{
        .decay = decay, .peak = 2.0, .warmup_steps = 10, .total_steps = 110, .min_factor = 0.1};
    EXPECT_DOUBLE_EQ(learning_rate(s, 10), 2.0);
    EXPECT_NEAR(learning_rate(s, 60), 2.0 * 0.55, 1e-12);
    EXPECT_NEAR(learning_rate(s, 110), 0.2, 1e-12);
    EXPECT_NEAR(learning_rate(s, 500), 0.2, 1e-12);
  }
}

TEST(LrScheduleTest, wsd_is_constant_until_its_decay) {
  const LrSchedule s{.decay = Decay::wsd, .peak = 1.0, .warmup_steps = 5, .total_steps = 100};
  EXPECT_DOUBLE_EQ(learning_rate(s, 5), 1.0);
  EXPECT_DOUBLE_EQ(learning_rate(s, 80), 1.0);
  EXPECT_NEAR(learning_rate(s, 90), 0.5, 1e-12);
  EXPECT_NEAR(learning_rate(s, 100), 0.0, 1e-12);
}

TEST(LrScheduleTest, never_rises_after_warm_up) {
  for (const Decay decay : {Decay::constant, Decay::linear, Decay::cosine, Decay::wsd}) {
    const LrSchedule s{.decay = decay, .peak = 1.0, .warmup_steps = 3, .total_steps = 40};
    for (int64_t step = 3; step < 60; ++step) {
      EXPECT_LE(learning_rate(s, step + 1), learning_rate(s, step)) << step;
    }
  }
}

TEST(LrScheduleTest, invalid_schedules_are_rejected) {
  EXPECT_THROW(check({.peak = 0}), base::ConfigError);
  EXPECT_THROW(check({.decay = Decay::cosine, .warmup_steps = 10, .total_steps = 10}),
               base::ConfigError);
  EXPECT_THROW(check({.min_factor = 1.5}), base::ConfigError);
  EXPECT_NO_THROW(check({.decay = Decay::wsd, .warmup_steps = 1, .total_steps = 10}));
}

}  // namespace
}  // namespace trireme::optim
