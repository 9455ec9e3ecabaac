// SPDX-License-Identifier: Apache-2.0
#include "schedule/prefixes.h"

#include <gtest/gtest.h>

namespace trireme::schedule {
namespace {

TEST(PrefixesTest, a_rank_needs_the_shortest_prefixes_of_others) {
  //                               0   1         2   3         4          5    6          7
  const auto schedule = from_text(
      "0F0 0SendY0>1 0F1 0SendY1>1 0RecvDy0<1 0BW0 0RecvDy1<1 0BW1\n"
      "1RecvX0<0 1F0 1BW0 1SendDx0>0 1RecvX1<0 1F1 1BW1 1SendDx1>0\n");
  ASSERT_TRUE(schedule) << schedule.reason();
  Prefixes two(schedule.value(), 2);
  two.need(0, 4);
  EXPECT_EQ(two.of(0), 4);
  EXPECT_EQ(two.of(1), 0);  // both sends have a buffer
  two.need(0, 6);
  EXPECT_EQ(two.of(1), 4);
  Prefixes one(schedule.value(), 1);
  one.need(0, 4);
  EXPECT_EQ(one.of(1), 1);  // the second send waits for the first receive
  one.need(1, 8);
  EXPECT_EQ(one.of(0), 5);  // and the second gradient for the first receive
}

}  // namespace
}  // namespace trireme::schedule
