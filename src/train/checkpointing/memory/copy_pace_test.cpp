// SPDX-License-Identifier: Apache-2.0
#include "train/checkpointing/memory/copy_pace.h"

#include <gtest/gtest.h>

namespace trireme::train {
namespace {

TEST(CopyPaceTest, copies_cost_at_most_the_allowed_share) {
  for (const double exposed : {0.0, 0.001, 0.01, 0.1, 1.0, 10.0}) {
    for (const double cost : {0.001, 0.01, 0.5}) {
      CopyPace pace(0, cost);
      EXPECT_EQ(pace.interval(), 1);
      pace.add({.exposed_seconds = exposed, .step_seconds = 0.5});
      const auto interval = static_cast<double>(pace.interval());
      EXPECT_LE(exposed, cost * 0.5 * interval * (1 + 1e-12)) << exposed << " " << cost;
      // One step less would cost too much.
      if (interval == 1) continue;
      EXPECT_GT(exposed, cost * 0.5 * (interval - 1)) << exposed << " " << cost;
    }
  }
}

TEST(CopyPaceTest, a_slow_first_copy_is_forgotten) {
  CopyPace pace(0, 0.01);
  pace.add({.exposed_seconds = 1, .step_seconds = 1});
  EXPECT_EQ(pace.interval(), 100);
  EXPECT_EQ(pace.retry(), 100);
  for (int i = 0; i < 20; ++i) pace.add({.exposed_seconds = 0.005, .step_seconds = 1});
  EXPECT_EQ(pace.interval(), 1);
}

TEST(CopyPaceTest, a_given_interval_stays) {
  CopyPace pace(3, 0.01);
  pace.add({.exposed_seconds = 1, .step_seconds = 0.1});
  EXPECT_EQ(pace.interval(), 3);
  EXPECT_EQ(pace.retry(), 1);
}

TEST(CopyPaceTest, steps_without_time_have_the_longest_interval) {
  CopyPace pace(0, 0.01);
  pace.add({.exposed_seconds = 1, .step_seconds = 0});
  EXPECT_EQ(pace.interval(), CopyPace::max_interval);
}

}  // namespace
}  // namespace trireme::train
