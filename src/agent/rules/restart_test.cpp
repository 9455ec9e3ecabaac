// SPDX-License-Identifier: Apache-2.0
#include "agent/rules/restart.h"

#include <gtest/gtest.h>

#include <vector>

#include "agent/exit_codes.h"

namespace trireme::agent {
namespace {

using Nodes = std::vector<NodeOutcome>;
const Nodes failed = {{exit_failed, true}, {exit_done, true}};

TEST(Restart, only_failures_are_started_again) {
  for (const int code : {exit_done, exit_bad_call, exit_stopped, exit_taken_over}) {
    const Decision decision = decide(Nodes{{code, true}, {exit_done, true}}, {.max_restarts = 9});
    EXPECT_EQ(decision, Decision{.exit_code = code});
  }
  EXPECT_TRUE(decide(failed, {.max_restarts = 9}).restarts);
  EXPECT_FALSE(
      decide(Nodes{{exit_failed, true}, {exit_failed, false}}, {.max_restarts = 9}).restarts);
}

TEST(Restart, the_limit_is_an_upper_bound) {
  for (int64_t restarts = 0; restarts < 5; ++restarts) {
    const Decision decision = decide(failed, {.restarts = restarts,
                                              .max_restarts = 3,
                                              .saved_at_start = restarts,
                                              .saved_now = restarts + 1});
    EXPECT_EQ(decision.restarts, restarts < 3);
    EXPECT_EQ(decision.exit_code, exit_failed);
  }
}

TEST(Restart, three_starts_without_progress_end_the_run) {
  Progress progress{.max_restarts = 100, .saved_at_start = 40, .saved_now = 40};
  std::vector<double> waits;
  while (true) {
    const Decision decision = decide(failed, progress);
    if (!decision.restarts) {
      EXPECT_EQ(decision.exit_code, exit_diverged);
      EXPECT_EQ(decision.reason,
                "3 starts in a row saved no step newer than step 40: the job is not started again");
      break;
    }
    waits.push_back(decision.wait_s);
    ++progress.restarts;
    progress.fruitless = decision.fruitless;
  }
  EXPECT_EQ(waits, (std::vector<double>{1, 2}));
}

TEST(Restart, a_job_that_misses_a_host_is_requeued_and_one_that_is_given_up_is_not) {
  for (const int code : {exit_failed, exit_stopped}) {
    const std::vector<NodeOutcome> nodes = {{code, true}};
    const Decision lost = decide(nodes, {.max_restarts = 3, .lost_host = "node 1 is lost"});
    EXPECT_EQ(lost.exit_code, exit_stopped);
    EXPECT_FALSE(lost.restarts);
    EXPECT_EQ(lost.reason, "node 1 is lost: the job is to be started again, with --resume auto");
    const Decision hopeless = decide(nodes, {.max_restarts = 3, .given_up = "no progress"});
    EXPECT_EQ(hopeless.exit_code, exit_diverged);
    EXPECT_EQ(hopeless.reason, "no progress");
  }
  const std::vector<NodeOutcome> taken_over = {{exit_taken_over, true}};
  EXPECT_EQ(decide(taken_over, {.lost_host = "node 1 is lost"}).exit_code, exit_taken_over);
}

TEST(Restart, progress_resets_the_count_and_the_wait) {
  const Decision decision = decide(
      failed,
      {.restarts = 5, .max_restarts = 9, .fruitless = 2, .saved_at_start = -1, .saved_now = 10});
  EXPECT_TRUE(decision.restarts);
  EXPECT_EQ(decision.fruitless, 0);
  EXPECT_EQ(decision.wait_s, 0);
}

TEST(Restart, unknown_progress_ends_nothing_but_the_wait_grows) {
  Progress progress{.max_restarts = 20};
  double longest = 0;
  for (; progress.restarts < 20; ++progress.restarts) {
    const Decision decision = decide(failed, progress);
    ASSERT_TRUE(decision.restarts);
    EXPECT_GE(decision.wait_s, longest);
    longest = decision.wait_s;
    progress.fruitless = decision.fruitless;
  }
  EXPECT_EQ(longest, 60);
  EXPECT_FALSE(decide(failed, progress).restarts);
}

TEST(Restart, another_layout_is_tried_at_once_and_whatever_the_limit_is) {
  const Progress progress{.fruitless = 2,
                          .saved_at_start = 4,
                          .saved_now = 4,
                          .next_layout = {"--activation_checkpoint.mode=full"}};
  const Decision decision = decide(failed, progress);
  EXPECT_TRUE(decision.restarts);
  EXPECT_EQ(decision.layout, progress.next_layout);
  EXPECT_EQ(decision.wait_s, 0);
  EXPECT_EQ(decision.fruitless, 0);
  EXPECT_FALSE(decide(Nodes{{exit_failed, false}}, progress).restarts) << "a stop was requested";
  EXPECT_FALSE(decide(Nodes{{exit_stopped, true}}, progress).restarts);
}

TEST(Restart, a_diverged_run_goes_back_once) {
  const Nodes diverged = {{exit_diverged, true}, {exit_failed, true}};
  Progress progress{.fruitless = 2, .saved_at_start = 80, .saved_now = 80, .before_divergence = 40};
  const Decision back = decide(diverged, progress);
  EXPECT_EQ(back, (Decision{.exit_code = exit_diverged, .restarts = true, .goes_back_to = 40}))
      << "without --restarts, and at once";
  progress.went_back_to = 40;
  const Decision again = decide(diverged, progress);
  EXPECT_FALSE(again.restarts);
  EXPECT_EQ(again.exit_code, exit_diverged);
  EXPECT_EQ(again.reason,
            "the numbers of the run diverged again after it had gone back to step 40: the job is "
            "not started again");
  const Decision none_left = decide(diverged, {.max_restarts = 9, .before_divergence = -1});
  EXPECT_FALSE(none_left.restarts);
  EXPECT_EQ(none_left.exit_code, exit_diverged);
  EXPECT_EQ(none_left.reason,
            "the numbers of the run diverged, and no checkpoint from before is left: the job is "
            "not started again");
  // A stop was requested, the ranks failed otherwise, or the rule is switched off.
  const Nodes stopped = {{exit_diverged, false}};
  EXPECT_EQ(decide(stopped, {.before_divergence = 40}), Decision{.exit_code = exit_diverged});
  EXPECT_EQ(decide(failed, {.max_restarts = 0, .before_divergence = 40}).goes_back_to, -1);
  EXPECT_EQ(decide(diverged, {.max_restarts = 9}), Decision{.exit_code = exit_diverged});
}

TEST(Restart, texts_of_the_store_are_read_back_and_others_refused) {
  const Decision decision{.exit_code = 1,
                          .restarts = true,
                          .wait_s = 4,
                          .fruitless = 2,
                          .reason = "x",
                          .layout = {"--a=1", "--b=2"},
                          .goes_back_to = 40};
  EXPECT_EQ(decision_from(to_text(decision)), decision);
  const NodeOutcome outcome{93, true};
  EXPECT_EQ(outcome_from(to_text(outcome)), outcome);
  for (const char* text : {"", "1 1", "[]", R"({"exit_code": "x"})", R"({"exit_code": 1})"}) {
    EXPECT_EQ(decision_from(text), std::nullopt) << text;
    EXPECT_EQ(outcome_from(text), std::nullopt) << text;
  }
}

}  // namespace
}  // namespace trireme::agent
