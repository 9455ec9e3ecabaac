// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "comm/register/isolation.h"

namespace trireme::comm {
namespace {

TEST(Isolation, stops_only_after_both_were_silent_for_the_whole_time) {
  Isolation isolation(30, 100);
  EXPECT_FALSE(isolation.must_stop(129.9));
  EXPECT_TRUE(isolation.must_stop(130));
  isolation.heard_register(130);
  EXPECT_FALSE(isolation.must_stop(159));
  isolation.heard_coordinator(159);
  EXPECT_FALSE(isolation.must_stop(188));
  EXPECT_TRUE(isolation.must_stop(189));
}

TEST(Isolation, one_of_the_two_suffices) {
  Isolation with_register(30, 0), with_coordinator(30, 0);
  for (int second = 0; second < 1000; second += 10) {
    with_register.heard_register(second);
    with_coordinator.heard_coordinator(second);
    EXPECT_FALSE(with_register.must_stop(second + 29));
    EXPECT_FALSE(with_coordinator.must_stop(second + 29));
  }
}

TEST(Isolation, a_message_that_is_handled_late_does_not_turn_time_back) {
  Isolation isolation(30, 0);
  isolation.heard_register(20);
  isolation.heard_register(5);
  EXPECT_EQ(isolation.register_silence(30), 10);
  EXPECT_EQ(isolation.coordinator_silence(30), 30);
  EXPECT_EQ(isolation.register_silence(0), 0);
}

}  // namespace
}  // namespace trireme::comm
