// SPDX-License-Identifier: Apache-2.0
#include "train/measure/op_times.h"

#include <gtest/gtest.h>

namespace trireme::train {
namespace {

TimedOp timed(int64_t m, double seconds) {
  TimedOp op;
  op.cost.kind = spec::OpKind::adamw;
  op.cost.m = m;
  op.cost.flops = 10;
  op.end = seconds;
  return op;
}

TEST(OpTimes, calls_of_one_shape_are_summed_and_the_longest_is_first) {
  const std::vector<OpTime> times = op_times({timed(1, 1), timed(2, 4), timed(1, 2)});
  ASSERT_EQ(times.size(), 2U);
  EXPECT_EQ(times[0].seconds, 4);
  EXPECT_EQ(times[0].count, 1);
  EXPECT_EQ(times[1].seconds, 3);
  EXPECT_EQ(times[1].flops, 20);
  EXPECT_EQ(times[1].count, 2);
  EXPECT_EQ(times[1].name.find("adamw 1x"), 0U) << times[1].name;
}

}  // namespace
}  // namespace trireme::train
