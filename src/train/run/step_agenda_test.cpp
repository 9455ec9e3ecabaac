// SPDX-License-Identifier: Apache-2.0
#include "train/run/step_agenda.h"

#include <gtest/gtest.h>

namespace trireme::train {
namespace {

// 100 steps: logs each 10, validates each 20, saves each 25, exports each 50.
config::Config agenda_config() {
  config::Config c;
  c.training.steps = 100;
  c.metrics.log_freq = 10;
  c.validation.freq = 20;
  c.checkpoint.enable = true;
  c.checkpoint.interval = 25;
  c.checkpoint.export_folder = "weights";
  c.checkpoint.export_interval = 50;
  return c;
}

TEST(StepAgenda, each_action_has_its_own_interval) {
  const StepAgenda agenda(agenda_config(), 1, true);
  EXPECT_EQ(agenda.actions(1, {}), (StepActions{.logs = true}));
  EXPECT_EQ(agenda.actions(2, {}), StepActions{});
  EXPECT_EQ(agenda.actions(10, {}), (StepActions{.logs = true}));
  EXPECT_EQ(agenda.actions(20, {}), (StepActions{.logs = true, .validates = true}));
  EXPECT_EQ(agenda.actions(25, {}), (StepActions{.saves = true}));
  EXPECT_EQ(agenda.actions(50, {}), (StepActions{.logs = true, .saves = true, .exports = true}));
}

TEST(StepAgenda, the_host_waits_to_log_validate_or_export_and_not_to_save) {
  EXPECT_FALSE(StepActions{}.waits());
  EXPECT_FALSE(StepActions{.saves = true}.waits());
  EXPECT_TRUE(StepActions{.logs = true}.waits());
  EXPECT_TRUE(StepActions{.validates = true}.waits());
  EXPECT_TRUE(StepActions{.exports = true}.waits());
}

TEST(StepAgenda, the_last_step_does_all_but_the_export_which_follows_the_run) {
  const StepActions all{.logs = true, .validates = true, .saves = true, .is_last = true};
  const StepAgenda agenda(agenda_config(), 1, true);
  EXPECT_EQ(agenda.actions(100, {}), all);
  EXPECT_EQ(agenda.actions(100, {.stop = true, .save = true}), all);
}

TEST(StepAgenda, a_stop_saves_at_once_and_does_not_validate) {
  const StepAgenda agenda(agenda_config(), 1, true);
  const StepActions stop{.logs = true, .saves = true, .is_stopped = true, .is_last = true};
  EXPECT_EQ(agenda.actions(33, {.stop = true}), stop);
  EXPECT_EQ(agenda.actions(40, {.stop = true}), stop);
}

TEST(StepAgenda, a_save_on_request_exports_and_one_by_the_clock_does_not) {
  const StepAgenda agenda(agenda_config(), 1, true);
  EXPECT_EQ(agenda.actions(33, {.save = true}), (StepActions{.saves = true, .exports = true}));
  EXPECT_EQ(agenda.actions(33, {.is_save_time = true}), (StepActions{.saves = true}));
}

TEST(StepAgenda, a_resumed_run_logs_its_first_step) {
  const StepAgenda agenda(agenda_config(), 34, true);
  EXPECT_TRUE(agenda.actions(34, {}).logs);
  EXPECT_FALSE(agenda.actions(35, {}).logs);
  EXPECT_TRUE(agenda.exchanges_requests(34));
}

TEST(StepAgenda, a_run_without_checkpoints_or_held_out_data_has_neither) {
  config::Config c = agenda_config();
  c.checkpoint.enable = false;
  const StepAgenda agenda(c, 1, false);
  for (int64_t step = 1; step <= 100; ++step) {
    const StepActions actions = agenda.actions(step, {.save = true, .is_save_time = true});
    EXPECT_FALSE(actions.saves || actions.exports || actions.validates) << step;
  }
  c.checkpoint.enable = true;
  c.checkpoint.export_folder = "";
  EXPECT_EQ(StepAgenda(c, 1, false).actions(51, {.save = true}), (StepActions{.saves = true}));
}

// Otherwise a stop that arrived before such a step would be seen one interval later.
TEST(StepAgenda, ranks_exchange_requests_at_every_step_that_does_something) {
  for (const bool enable : {false, true}) {
    config::Config c = agenda_config();
    c.checkpoint.enable = enable;
    for (const bool has_validation : {false, true}) {
      const StepAgenda agenda(c, 7, has_validation);
      for (int64_t step = 7; step <= 100; ++step) {
        if (agenda.actions(step, {}) != StepActions{}) {
          EXPECT_TRUE(agenda.exchanges_requests(step)) << step;
        }
      }
      EXPECT_FALSE(agenda.exchanges_requests(8));
    }
  }
}

}  // namespace
}  // namespace trireme::train
