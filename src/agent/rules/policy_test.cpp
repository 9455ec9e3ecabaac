// SPDX-License-Identifier: Apache-2.0
#include "agent/rules/policy.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace trireme::agent {
namespace {

using enum Event;

// Applies events at times and returns the actions of each.
class Trial {
 public:
  explicit Trial(const PolicyLimits& limits = {}) : policy_(limits) {}

  std::string give(Event event, double at, int64_t epoch = 0) {
    const PolicyStep step = policy_.next(state_, {event, epoch}, at);
    state_ = step.state;
    return text_of(step.action);
  }
  // Lets time pass, as a launcher that runs.
  std::string pass(double from, double to) {
    std::string all;
    for (double at = from; at <= to; at += 0.1) {
      const std::string action = give(time_passed, at);
      if (!action.empty()) all += (all.empty() ? "" : "; ") + action;
    }
    return all;
  }
  Mode mode() const { return state_.mode; }

 private:
  Policy policy_;
  PolicyState state_;
};

TEST(Policy, every_mode_is_left_and_over_is_final) {
  for (int mode = 0; mode < static_cast<int>(Mode::over); ++mode) {
    bool is_left = false;
    for (int event = 0; event < static_cast<int>(Event::count); ++event) {
      const PolicyRule& rule = rule_of(static_cast<Mode>(mode), static_cast<Event>(event));
      is_left = is_left || (rule.next != Mode::unchanged && rule.next != static_cast<Mode>(mode));
    }
    EXPECT_TRUE(is_left) << name_of(static_cast<Mode>(mode));
  }
  for (int event = 0; event < static_cast<int>(Event::count); ++event) {
    EXPECT_EQ(rule_of(Mode::over, static_cast<Event>(event)).next, Mode::unchanged);
    EXPECT_EQ(rule_of(Mode::over, static_cast<Event>(event)).action, Action::none);
  }
}

TEST(Policy, after_a_failure_others_report_then_ranks_end_are_asked_and_killed) {
  Trial trial;
  EXPECT_EQ(trial.give(rank_failed, 10), "hold_output");
  EXPECT_EQ(trial.pass(10.1, 10.35), "");
  EXPECT_EQ(trial.give(time_passed, 10.41), "judge");
  EXPECT_EQ(trial.give(verdict_given, 10.42), "hold_output, announce");
  EXPECT_EQ(trial.give(verdict_given, 10.43), "");
  EXPECT_EQ(trial.give(time_passed, 11.4), "");
  EXPECT_EQ(trial.give(time_passed, 11.43), "terminate");
  EXPECT_EQ(trial.give(time_passed, 12.4), "");
  EXPECT_EQ(trial.give(time_passed, 12.44), "kill");
  EXPECT_EQ(trial.give(all_ended, 12.5), "publish");
  EXPECT_EQ(trial.give(all_outcomes, 12.6), "propose");
  EXPECT_EQ(trial.give(decided, 12.7), "follow");
  EXPECT_EQ(trial.give(decided, 12.8), "");
}

TEST(Policy, the_launcher_of_the_dead_rank_concludes_first) {
  Trial near, far;
  (void)near.give(rank_failed, 1);
  (void)far.give(rank_lost, 1);
  EXPECT_EQ(near.give(time_passed, 1.5), "judge");
  EXPECT_EQ(far.give(time_passed, 1.5), "");
  EXPECT_EQ(far.give(rank_failed, 1.6), "hold_output");
  EXPECT_EQ(far.give(time_passed, 1.7), "judge");  // 0.4 s after the first failure
}

TEST(Policy, a_stop_is_forwarded_once_and_a_late_one_kills) {
  Trial trial({.stopping = 60});
  EXPECT_EQ(trial.give(stop, 1), "forward_stop");
  EXPECT_EQ(trial.give(stop, 2), "");
  EXPECT_EQ(trial.give(interrupt, 3), "");
  EXPECT_EQ(trial.give(rank_stalled, 4), "");
  EXPECT_EQ(trial.give(save, 5), "forward_save");
  EXPECT_EQ(trial.give(interrupt, 6), "kill");
  Trial late({.stopping = 60});
  (void)late.give(stop, 1);
  EXPECT_EQ(late.pass(1.1, 60.9), "");
  EXPECT_EQ(late.give(time_passed, 61.1), "kill");
}

TEST(Policy, a_broken_stop_ends_soon) {
  Trial trial;
  (void)trial.give(stop, 1);
  EXPECT_EQ(trial.give(rank_failed, 2), "");
  EXPECT_EQ(trial.mode(), Mode::broken_stop);
  EXPECT_EQ(trial.pass(2.1, 6.9), "");
  EXPECT_EQ(trial.give(time_passed, 7.1), "kill");
}

TEST(Policy, a_launcher_that_did_not_run_judges_no_silence_until_ranks_had_time_to_beat) {
  Trial trial({.detect = 5});
  EXPECT_EQ(trial.pass(1, 3), "");
  EXPECT_EQ(trial.give(rank_stalled, 20), "");  // before it knows how late it is
  EXPECT_EQ(trial.give(time_passed, 20), "");
  EXPECT_EQ(trial.pass(20.1, 24.9), "");
  EXPECT_EQ(trial.give(rank_stalled, 24.9), "");
  EXPECT_EQ(trial.pass(25, 25.2), "");
  EXPECT_EQ(trial.give(rank_stalled, 25.3), "judge");
}

TEST(Policy, a_lost_rank_is_replaced_and_the_next_epoch_is_entered) {
  Trial trial;
  EXPECT_EQ(trial.give(rank_failed, 10), "hold_output");
  EXPECT_EQ(trial.give(regroup, 10.1), "hold_output, announce, replace");
  EXPECT_EQ(trial.give(rank_failed, 10.2), "replace");
  EXPECT_EQ(trial.give(verdict_given, 10.2), "");
  EXPECT_EQ(trial.give(ranks_ready, 10.3), "tell_ready");
  EXPECT_EQ(trial.give(nodes_ready, 10.3), "form");
  EXPECT_EQ(trial.give(formed, 10.4), "enter");
  EXPECT_EQ(trial.mode(), Mode::running);
  // Late events of the epoch that is over.
  EXPECT_EQ(trial.give(verdict_given, 10.5, 0), "");
  EXPECT_EQ(trial.give(regroup, 10.5, 0), "");
  EXPECT_EQ(trial.give(rank_failed, 10.6, 1), "hold_output");
}

TEST(Policy, ranks_that_do_not_leave_an_epoch_are_killed) {
  Trial trial({.regrouping = 2});
  trial.give(regroup, 10);
  EXPECT_EQ(trial.pass(10.1, 11.9), "");
  EXPECT_EQ(trial.give(time_passed, 12.1), "kill_late");
  EXPECT_EQ(trial.give(hopeless, 12.2), "terminate");
  EXPECT_EQ(trial.mode(), Mode::asked);
}

TEST(Policy, a_stop_ends_a_change_of_epochs) {
  Trial trial;
  trial.give(regroup, 10);
  EXPECT_EQ(trial.give(stop, 10.1), "forward_stop");
  EXPECT_EQ(trial.give(formed, 10.2), "");
  EXPECT_EQ(trial.give(all_ended, 10.5), "publish");
}

TEST(Policy, events_of_earlier_epochs_change_nothing) {
  const Policy policy({});
  const PolicyState state{.mode = Mode::deciding, .epoch = 3};
  for (int event = 0; event < static_cast<int>(Event::count); ++event) {
    const PolicyStep step = policy.next(state, {static_cast<Event>(event), 2}, 5);
    EXPECT_EQ(step.state, state) << name_of(static_cast<Event>(event));
    EXPECT_EQ(step.action, Action::none);
  }
  EXPECT_EQ(policy.next(state, {decided, 3}, 5).state.mode, Mode::over);
}

TEST(Policy, without_the_store_no_launcher_starts_anything) {
  Trial trial;
  (void)trial.give(all_ended, 1);
  EXPECT_EQ(trial.give(store_gone, 2), "end_alone");
  Trial watching;
  EXPECT_EQ(watching.give(store_gone, 1), "hold_output, announce");
}

}  // namespace
}  // namespace trireme::agent
