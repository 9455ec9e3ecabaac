// SPDX-License-Identifier: Apache-2.0
#include "train/report/train_summary.h"

#include <gtest/gtest.h>

namespace trireme::train {
namespace {

RankFigures figures(int64_t predicted, int64_t measured, int64_t checkpoints) {
  RankFigures rank;
  rank.predicted.params = predicted;
  rank.measured.params = measured;
  rank.host.checkpoints = {.predicted_bytes = checkpoints, .measured_bytes = checkpoints};
  return rank;
}

TEST(TrainSummary, the_rank_furthest_from_its_prediction_is_shown) {
  TrainSummary summary;
  set_ranks(summary, {figures(100, 100, 7), figures(50, 40, 9), figures(30, 35, 8)});
  EXPECT_EQ(summary.predicted.total(), 50);
  EXPECT_EQ(summary.measured.total(), 40);
  EXPECT_EQ(summary.host_memory.checkpoints.predicted_bytes, 9);
  EXPECT_EQ(summary.ranks.size(), 3U);
}

TEST(TrainSummary, among_ranks_as_predicted_the_largest_is_shown) {
  TrainSummary summary;
  set_ranks(summary, {figures(30, 30, 0), figures(100, 100, 0), figures(50, 50, 0)});
  EXPECT_EQ(summary.predicted.total(), 100);
  EXPECT_EQ(summary.host_memory.checkpoints.measured_bytes, 0);
}

TEST(TrainSummary, a_run_that_saves_is_unsaved_unless_its_last_step_is_saved) {
  TrainSummary summary{.steps = 40, .attempt_steps = 30};
  EXPECT_FALSE(is_unsaved(summary)) << "it saves nothing";
  summary.checkpoints = {.saves = 1, .failed = 3};
  summary.saved_step = 10;
  EXPECT_TRUE(is_unsaved(summary));
  summary.saved_step = 40;
  EXPECT_FALSE(is_unsaved(summary)) << "an earlier save failed";
  EXPECT_TRUE(is_unsaved({.steps = 5, .attempt_steps = 5, .was_stopped = true}));
}

TEST(TrainSummary, the_advice_after_a_failed_export_names_the_step_that_would_be_exported) {
  TrainSummary summary{.steps = 40, .saved_step = 40};
  EXPECT_EQ(export_advice(summary, "runs/a"),
            "`trireme ckpt export runs/a` makes them from the checkpoint of step 40");
  summary.saved_step = -1;
  summary.resumed_from = 10;
  EXPECT_EQ(export_advice(summary, "runs/a"),
            "the newest checkpoint is of step 10, and `trireme ckpt export runs/a` would export "
            "that step, not step 40");
  summary.resumed_from = 0;
  EXPECT_EQ(export_advice(summary, "runs/a"), "there is no checkpoint to export them from");
}

}  // namespace
}  // namespace trireme::train
