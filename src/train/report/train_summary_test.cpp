// SPDX-License-Identifier: Apache-2.0
#include "train/report/train_summary.h"

#include <gtest/gtest.h>

namespace trireme::train {
namespace {

RankFigures figures(int64_t predicted, int64_t measured, int64_t checkpoints) {
  RankFigures rank;
  rank.predicted.params = predicted;
  rank.measured.params = measured;
  rank.checkpoints = {.predicted_bytes = checkpoints, .measured_bytes = checkpoints};
  return rank;
}

TEST(TrainSummary, the_rank_furthest_from_its_prediction_is_shown) {
  TrainSummary summary;
  set_ranks(summary, {figures(100, 100, 7), figures(50, 40, 9), figures(30, 35, 8)});
  EXPECT_EQ(summary.predicted.total(), 50);
  EXPECT_EQ(summary.measured.total(), 40);
  EXPECT_EQ(summary.checkpoint_memory.predicted_bytes, 9);
  EXPECT_EQ(summary.ranks.size(), 3U);
}

TEST(TrainSummary, among_ranks_as_predicted_the_largest_is_shown) {
  TrainSummary summary;
  set_ranks(summary, {figures(30, 30, 0), figures(100, 100, 0), figures(50, 50, 0)});
  EXPECT_EQ(summary.predicted.total(), 100);
  EXPECT_EQ(summary.checkpoint_memory.measured_bytes, 0);
}

}  // namespace
}  // namespace trireme::train
