// SPDX-License-Identifier: Apache-2.0
#include "agent/rules/launcher_watch.h"

#include <gtest/gtest.h>

#include <vector>

namespace trireme::agent {
namespace {

using Places = std::vector<size_t>;
using comm::MemberFacts;

std::vector<MemberFacts> launchers(double seen_at) {
  return {{.name = "node0", .state = "", .seen_at = seen_at},
          {.name = "node1", .state = "", .seen_at = seen_at}};
}

TEST(LauncherWatch, one_that_ends_is_lost_after_the_grace_time) {
  LauncherWatch watch(3, 5);
  auto facts = launchers(10);
  facts[1].departure = 0;
  EXPECT_EQ(watch.lost(facts, 10, true), Places());
  EXPECT_EQ(watch.lost(facts, 12.9, true), Places());
  facts[0].seen_at = 13;
  EXPECT_EQ(watch.lost(facts, 13, true), Places{1});
}

TEST(LauncherWatch, one_that_joins_again_is_not) {
  LauncherWatch watch(3, 5);
  auto facts = launchers(12);
  facts[1].departure = 0;
  EXPECT_EQ(watch.lost(facts, 10, true), Places());
  facts[1].departure.reset();
  EXPECT_EQ(watch.lost(facts, 12, true), Places());
  facts[1].departure = 1;  // and ends again
  EXPECT_EQ(watch.lost(facts, 14, true), Places());
  EXPECT_EQ(watch.lost(facts, 16.5, true), Places());
  EXPECT_EQ(watch.lost(facts, 17, true), Places{1});
}

TEST(LauncherWatch, one_that_is_silent_is_lost_if_silence_can_be_judged) {
  LauncherWatch watch(3, 5);
  const auto facts = launchers(10);
  EXPECT_EQ(watch.lost(facts, 15, true), Places());
  EXPECT_EQ(watch.lost(facts, 15.1, false), Places());
  EXPECT_EQ(watch.lost(facts, 15.1, true), (Places{0, 1}));
}

TEST(LauncherWatch, one_that_never_announced_itself_has_not_begun) {
  LauncherWatch watch(3, 5);
  EXPECT_EQ(watch.lost(std::vector<MemberFacts>{{.name = "node1"}}, 100, true), Places());
}

TEST(LauncherWatch, without_a_grace_time_one_that_ends_is_lost_at_once) {
  LauncherWatch watch(0, 5);
  auto facts = launchers(10);
  facts[0].departure = 0;
  EXPECT_EQ(watch.lost(facts, 10, true), Places{0});
}

}  // namespace
}  // namespace trireme::agent
