// SPDX-License-Identifier: Apache-2.0
#include "cli/chaos/schedule.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

namespace trireme::cli {
namespace {

const std::vector<DisturbanceKind> each_kind = {DisturbanceKind::kill, DisturbanceKind::pause,
                                                DisturbanceKind::freeze};

TEST(ChaosSchedule, is_the_same_for_a_seed_and_another_for_another) {
  const ScheduleOptions options{
      .seed = 7, .count = 50, .ranks = 4, .steps = 1000, .kinds = each_kind};
  ScheduleOptions other = options;
  other.seed = 8;
  EXPECT_EQ(draw_schedule(options), draw_schedule(options));
  EXPECT_NE(draw_schedule(options), draw_schedule(other));
}

// A history can be repeated on another machine, with another standard library.
TEST(ChaosSchedule, does_not_depend_on_the_library) {
  const auto schedule =
      draw_schedule({.seed = 1, .count = 5, .ranks = 4, .steps = 600, .kinds = each_kind});
  std::vector<int64_t> steps;
  std::vector<int> ranks;
  for (const Disturbance& one : schedule) {
    steps.push_back(one.after_step);
    ranks.push_back(one.rank);
  }
  EXPECT_EQ(steps, (std::vector<int64_t>{46, 108, 279, 381, 446}));
  EXPECT_EQ(ranks, (std::vector<int>{0, 1, 2, 1, 2}));
}

TEST(ChaosSchedule, covers_ranks_kinds_and_the_run_in_order) {
  for (uint64_t seed = 0; seed < 100; ++seed) {
    const ScheduleOptions options{.seed = seed,
                                  .count = 60,
                                  .ranks = 3,
                                  .steps = 6000,
                                  .kinds = each_kind,
                                  .detect_seconds = 2};
    const auto schedule = draw_schedule(options);
    ASSERT_EQ(schedule.size(), 60U);
    std::set<int> ranks;
    std::set<DisturbanceKind> kinds;
    int64_t number = 0, before = 1;
    for (const Disturbance& one : schedule) {
      EXPECT_EQ(one.number, ++number);
      EXPECT_GE(one.after_step, before);
      before = one.after_step;
      ranks.insert(one.rank);
      kinds.insert(one.kind);
      EXPECT_GE(one.step_share, 0);
      EXPECT_LT(one.step_share, 2);
      if (one.kind == DisturbanceKind::pause) {
        EXPECT_GT(one.pause_seconds, 0);
        EXPECT_LE(one.pause_seconds, 1);  // half of what a silent rank has
      } else {
        EXPECT_EQ(one.pause_seconds, 0);
      }
    }
    EXPECT_EQ(ranks, (std::set<int>{0, 1, 2})) << seed;
    EXPECT_EQ(kinds.size(), 3U) << seed;
    EXPECT_LE(schedule.back().after_step, 6000 * 60 / 61 + 1);  // the end is left to recover
    EXPECT_GT(schedule.back().after_step, 6000 / 2);
  }
}

TEST(ChaosSchedule, fits_a_run_of_one_step) {
  const auto schedule =
      draw_schedule({.seed = 3, .count = 1, .ranks = 1, .steps = 1, .kinds = each_kind});
  ASSERT_EQ(schedule.size(), 1U);
  EXPECT_EQ(schedule[0].after_step, 1);
  EXPECT_EQ(schedule[0].rank, 0);
}

}  // namespace
}  // namespace trireme::cli
