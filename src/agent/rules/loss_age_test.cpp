// SPDX-License-Identifier: Apache-2.0
#include "agent/rules/loss_age.h"

#include <gtest/gtest.h>

#include <vector>

namespace trireme::agent {
namespace {

comm::RankReport report_of(double silent_s, double still_s) {
  comm::RankReport report{.position = comm::RankPosition{}, .silent_s = silent_s};
  report.position->motion = comm::Motion{.phase = "step", .still_s = still_s};
  return report;
}

TEST(LossAge, a_silent_rank_is_lost_since_its_last_beat_and_a_hanging_one_since_it_moved) {
  std::vector<comm::RankReport> reports = {report_of(1.25, 0.5), report_of(0.25, 3), {}};
  const auto age = [&](std::vector<int> ranks) {
    return loss_age({.kind = comm::VerdictKind::stalled, .ranks = std::move(ranks)}, reports, 1);
  };
  EXPECT_EQ(age({0}), 1.25);
  EXPECT_EQ(age({1}), 3.25);
  EXPECT_EQ(age({0, 1}), 3.25);
  EXPECT_EQ(age({2}), 0);  // it has never beaten
  EXPECT_EQ(age({}), 0);
  EXPECT_EQ(age({7}), 0);  // of another world
  reports[0].ended = "was killed by signal 9 (SIGKILL)";
  EXPECT_EQ(age({0}), 0);
}

}  // namespace
}  // namespace trireme::agent
