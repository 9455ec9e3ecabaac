// SPDX-License-Identifier: Apache-2.0
#include "train/run/state/epoch_state.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <random>
#include <set>
#include <utility>
#include <vector>

namespace trireme::train {
namespace {

const std::vector<ckpt::TensorInfo> tensors = {{"weight/a", base::DType::f32, {8, 4}},
                                               {"weight/b", base::DType::f32, {6}}};

// Rows [lo, hi) of the first tensor, and the second one if `has_b`.
StateReport report(std::optional<int64_t> step, int64_t lo, int64_t hi, bool has_b) {
  StateReport held;
  if (step) held.states.push_back({.step = *step});
  if (lo < hi) held.boxes.push_back({tensors[0], {{{lo, 0}, {hi, 4}, 0}}});
  if (has_b) held.boxes.push_back({tensors[1], {{{0}, {6}, 0}}});
  return held;
}
StateReport whole(std::optional<int64_t> step) { return report(step, 0, 8, true); }

TEST(ResumePointTest, the_largest_step_that_a_replica_has) {
  const std::vector<StateReport> reports = {whole(6), {}, whole(7), whole(7)};
  EXPECT_EQ(resume_point(tensors, reports), (LivePoint{.step = 7, .sources = {2}}));
}

TEST(ResumePointTest, shards_of_several_ranks_are_a_state) {
  const std::vector<StateReport> reports = {
      report(5, 0, 4, false), report(5, 4, 8, false), report(5, 4, 8, true), {}};
  EXPECT_EQ(resume_point(tensors, reports), (LivePoint{.step = 5, .sources = {0, 1, 2}}));
}

TEST(ResumePointTest, a_step_with_a_lost_box_is_left_for_an_older_one) {
  // Rank 1, which had the other half after step 7, is gone.
  std::vector<StateReport> reports = {report(7, 0, 4, true), {}, whole(6)};
  EXPECT_EQ(resume_point(tensors, reports), (LivePoint{.step = 6, .sources = {2}}));
  reports[2] = {};
  EXPECT_EQ(resume_point(tensors, reports), std::nullopt);
}

TEST(ResumePointTest, boxes_of_different_steps_are_no_state) {
  const std::vector<StateReport> reports = {report(7, 0, 4, true), report(6, 4, 8, false)};
  EXPECT_EQ(resume_point(tensors, reports), std::nullopt);
  EXPECT_EQ(resume_point(tensors, std::vector<StateReport>{{}, {}}), std::nullopt);
}

// ---- copies

using StateKind = HeldState::Kind;

StateReport with(StateReport report, int64_t step, StateKind kind) {
  report.states.push_back({.step = step, .kind = kind});
  return report;
}

TEST(ResumePointTest, a_lost_box_comes_from_a_copy_of_the_newest_step_that_all_hold) {
  // Rank 1 was replaced: it has copies only. The live states of step 7 lack its half.
  const std::vector<StateReport> reports = {
      with(report(7, 0, 4, true), 6, StateKind::held_copy),
      with(with(report({}, 4, 8, false), 6, StateKind::held_copy), 5, StateKind::held_copy)};
  EXPECT_EQ(resume_point(tensors, reports), (LivePoint{.step = 6, .sources = {0, 1}}));
}

TEST(ResumePointTest, live_states_come_before_copies) {
  const std::vector<StateReport> reports = {with(whole({}), 7, StateKind::held_copy), whole(7)};
  EXPECT_EQ(resume_point(tensors, reports), (LivePoint{.step = 7, .sources = {1}}));
}

TEST(ResumePointTest, a_sealed_copy_counts_if_every_rank_has_a_state_of_its_step) {
  std::vector<StateReport> reports = {with(whole(6), 7, StateKind::sealed_copy), whole(6)};
  EXPECT_EQ(resume_point(tensors, reports), (LivePoint{.step = 6, .sources = {0}}));
  reports[1] = with(reports[1], 7, StateKind::sealed_copy);
  EXPECT_EQ(resume_point(tensors, reports), (LivePoint{.step = 7, .sources = {0}}));
  reports[1] = whole(7);
  EXPECT_EQ(resume_point(tensors, reports), (LivePoint{.step = 7, .sources = {1}}));
}

StateReport kept(StateReport report, int64_t step, StateKind kind, int keeper) {
  report.states.push_back({.step = step, .kind = kind, .keeper = keeper});
  return report;
}

TEST(ResumePointTest, the_copies_of_a_lost_node_come_from_those_that_keep_them) {
  // Ranks 1 and 2 were lost with their node: rank 0 keeps the copies of rank 1, and of those of
  // rank 2 only an older one is left.
  std::vector<StateReport> reports = {
      with(with(report({}, 0, 2, true), 7, StateKind::held_copy), 6, StateKind::held_copy),
      kept(kept(report({}, 2, 6, false), 7, StateKind::held_copy, 0), 6, StateKind::held_copy, 0),
      kept(report({}, 6, 8, false), 6, StateKind::held_copy, 3)};
  EXPECT_EQ(resume_point(tensors, reports), (LivePoint{.step = 6, .sources = {0, 1, 2}}));
  reports[2] = kept(reports[2], 7, StateKind::sealed_copy, 3);
  EXPECT_EQ(resume_point(tensors, reports), (LivePoint{.step = 7, .sources = {0, 1, 2}}));
}

TEST(ResumePointTest, a_copy_that_another_rank_keeps_is_the_last_choice) {
  std::vector<StateReport> reports = {kept(whole({}), 7, StateKind::held_copy, 1),
                                      with(whole({}), 7, StateKind::held_copy)};
  EXPECT_EQ(resume_point(tensors, reports), (LivePoint{.step = 7, .sources = {1}}));
  reports.push_back(whole(7));
  EXPECT_EQ(resume_point(tensors, reports), (LivePoint{.step = 7, .sources = {2}}));
}

// Random ranks with random boxes and states: the step has every box, and no newer one has.
TEST(ResumePointTest, never_a_step_that_lacks_a_box_and_always_the_newest) {
  int found = 0;
  for (uint32_t seed = 1; seed <= 2000; ++seed) {
    std::mt19937 random(seed);
    const size_t ranks = 1 + random() % 4;
    std::vector<StateReport> reports;
    // By rank: rows [lo, hi) of the first tensor, and whether it has the second.
    std::vector<std::array<int64_t, 3>> owned;
    for (size_t rank = 0; rank < ranks; ++rank) {
      const int64_t lo = 2 * static_cast<int64_t>(random() % 4);
      const int64_t hi =
          lo + 2 * static_cast<int64_t>(1 + random() % static_cast<uint32_t>(4 - lo / 2));
      owned.push_back({lo, hi, random() % 2 == 0 ? 1 : 0});
      reports.push_back(report({}, lo, hi, owned.back()[2] != 0));
      for (int64_t step = 4; step < 8; ++step) {
        if (random() % 2 == 0) continue;
        const auto kind = static_cast<StateKind>(random() % 3);
        reports.back() = kind != StateKind::live && random() % 3 == 0
                             ? kept(reports.back(), step, kind, 0)
                             : with(reports.back(), step, kind);
      }
    }
    const auto is_complete = [&](int64_t step) {
      const bool is_everywhere = std::ranges::all_of(reports, [step](const StateReport& of_rank) {
        return std::ranges::any_of(of_rank.states,
                                   [step](const auto& s) { return s.step == step; });
      });
      std::set<int64_t> rows;
      bool has_b = false;
      for (size_t rank = 0; rank < ranks; ++rank) {
        for (const HeldState& state : reports[rank].states) {
          if (state.step != step || (state.kind == StateKind::sealed_copy && !is_everywhere))
            continue;
          for (int64_t row = owned[rank][0]; row < owned[rank][1]; ++row) rows.insert(row);
          has_b = has_b || owned[rank][2] != 0;
        }
      }
      return rows.size() == 8 && has_b;
    };
    std::optional<int64_t> newest;
    for (int64_t step = 4; step < 8; ++step) {
      if (is_complete(step)) newest = step;
    }
    const std::optional<LivePoint> point = resume_point(tensors, reports);
    ASSERT_EQ(point.has_value(), newest.has_value()) << "seed " << seed;
    if (!point) continue;
    ++found;
    EXPECT_EQ(point->step, *newest) << "seed " << seed;
    for (const int source : point->sources) {
      const auto& states = reports[static_cast<size_t>(source)].states;
      EXPECT_TRUE(std::ranges::any_of(states, [&](const auto& s) { return s.step == *newest; }));
    }
  }
  EXPECT_GT(found, 200);
}

}  // namespace
}  // namespace trireme::train
