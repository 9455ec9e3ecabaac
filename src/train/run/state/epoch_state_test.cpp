// SPDX-License-Identifier: Apache-2.0
#include "train/run/state/epoch_state.h"

#include <gtest/gtest.h>

#include <utility>
#include <vector>

namespace trireme::train {
namespace {

const std::vector<ckpt::TensorInfo> tensors = {{"weight/a", base::DType::f32, {8, 4}},
                                               {"weight/b", base::DType::f32, {6}}};

// Rows [lo, hi) of the first tensor, and the second one if `has_b`.
StateReport report(std::optional<int64_t> step, int64_t lo, int64_t hi, bool has_b) {
  StateReport held{.step = step, .boxes = {}};
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

}  // namespace
}  // namespace trireme::train
