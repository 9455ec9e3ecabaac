// SPDX-License-Identifier: Apache-2.0
#include "cli/run/train_summary.h"

#include <gtest/gtest.h>

#include "agent/exit_codes.h"
#include "train/record/ending.h"

namespace trireme::cli {
namespace {

using analysis::OutcomeKind;

std::string problem_of(const train::TrainSummary& summary) {
  return train::ending_of(summary).problem;
}

TEST(TrainExit, a_run_that_diverged_may_not_be_started_again) {
  train::TrainSummary summary{.steps = 40, .attempt_steps = 40, .saved_step = 40};
  summary.checkpoints = {.saves = 1};
  EXPECT_EQ(exit_code_of(summary), agent::exit_done);
  summary.has_diverged = true;
  summary.divergence = "diverged since step 3: the loss is about 1e+08";
  EXPECT_EQ(exit_code_of(summary), agent::exit_diverged);
  EXPECT_EQ(train::reason_of(train::ending_of(summary)), "diverged");
  EXPECT_NE(problem_of(summary).find("the loss is about 1e+08: this run has not trained"),
            std::string::npos)
      << problem_of(summary);
  // Also if it was stopped, or not saved: another start would end in the same way.
  summary.was_stopped = true;
  EXPECT_EQ(exit_code_of(summary), agent::exit_diverged);
  summary.saved_step = -1;
  EXPECT_EQ(exit_code_of(summary), agent::exit_diverged);
  EXPECT_NE(problem_of(summary).find("was not saved"), std::string::npos);
}

TEST(TrainExit, a_stop_counts_if_it_was_saved) {
  train::TrainSummary summary{.steps = 1, .attempt_steps = 1, .was_stopped = true, .saved_step = 1};
  EXPECT_EQ(problem_of(summary), "");
  EXPECT_EQ(exit_code_of(summary), agent::exit_stopped);
  EXPECT_EQ(train::reason_of(train::ending_of(summary)), "stopped");
  summary.saved_step = -1;
  EXPECT_EQ(exit_code_of(summary), agent::exit_failed);
  EXPECT_EQ(train::reason_of(train::ending_of(summary)), "failed");
}

TEST(TrainExit, a_last_step_that_was_not_saved_is_a_failure) {
  train::TrainSummary summary{.steps = 40, .attempt_steps = 40, .saved_step = 10};
  summary.checkpoints = {.saves = 1, .failed = 3};
  summary.save_problem = "disk full";
  EXPECT_EQ(exit_code_of(summary), agent::exit_failed);
  EXPECT_EQ(train::ending_of(summary).kind, OutcomeKind::unsaved);
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
