// SPDX-License-Identifier: Apache-2.0
#include "cli/run/train_summary.h"

#include <gtest/gtest.h>

#include "agent/exit_codes.h"

namespace trireme::cli {
namespace {

TEST(TrainExit, a_stop_that_was_saved_counts_whatever_the_steps_did) {
  train::TrainSummary summary{
      .steps = 1, .attempt_steps = 1, .attempt_skipped_steps = 1, .was_stopped = true};
  summary.saved_step = 1;
  EXPECT_EQ(problem_of(summary), "");
  EXPECT_EQ(exit_code_of(summary), agent::exit_stopped);
  summary.saved_step = -1;
  EXPECT_EQ(exit_code_of(summary), agent::exit_failed);
  summary.was_stopped = false;
  summary.saved_step = 1;
  EXPECT_EQ(exit_code_of(summary), agent::exit_failed) << "it has not trained";
}

TEST(TrainExit, a_last_step_that_was_not_saved_is_a_failure) {
  train::TrainSummary summary{.steps = 40, .attempt_steps = 40, .saved_step = 10};
  summary.checkpoints = {.saves = 1, .failed = 3};
  summary.save_problem = "disk full";
  EXPECT_EQ(exit_code_of(summary), agent::exit_failed);
  EXPECT_EQ(problem_of(summary),
            "step 40 is the last one, and its checkpoint was not saved: disk full; --resume auto "
            "repeats the steps after 10, the newest checkpoint");
  summary.export_problem = "no space";
  summary.run_folder = "runs/a";
  EXPECT_NE(problem_of(summary).find("the weights were not exported: no space; the newest "
                                     "checkpoint is of step 10"),
            std::string::npos)
      << problem_of(summary);
  summary.saved_step = 40;
  summary.export_problem.clear();
  EXPECT_EQ(exit_code_of(summary), agent::exit_done) << "earlier saves failed";
}

}  // namespace
}  // namespace trireme::cli
