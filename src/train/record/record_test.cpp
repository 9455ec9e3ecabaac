// SPDX-License-Identifier: Apache-2.0
// The time between attempts, rules of alerts, and lines of steps.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "train/record/alert_rules.h"
#include "train/record/earlier_attempts.h"
#include "train/record/step_lines.h"
#include "train/record/stragglers.h"

namespace trireme::train {
namespace {

using obs::Phase;

EarlierAttempts killed_at(double end, double alive_until) {
  EarlierAttempts earlier;
  earlier.attempt = 3;
  earlier.end = end;
  earlier.current = Phase::useful;
  earlier.alive_until = alive_until;
  return earlier;
}

// Expects contiguous spans from `begin` to `end` and returns them.
std::vector<obs::PhaseRecord> checked(const EarlierAttempts& earlier, double begin) {
  std::vector<obs::PhaseRecord> records = records_between(earlier, 4, begin);
  double at = earlier.end;
  for (const obs::PhaseRecord& record : records) {
    EXPECT_EQ(record.begin, at);
    EXPECT_EQ(record.sum(), record.end - record.begin);
    at = record.end;
  }
  EXPECT_EQ(at, begin);
  return records;
}

TEST(EarlierAttempts, a_first_attempt_has_nothing_before_it) {
  EXPECT_TRUE(records_between({}, 1, 100).empty());
}

TEST(EarlierAttempts, after_a_stop_on_request_the_time_is_a_planned_stop) {
  EarlierAttempts earlier = killed_at(100, 150);
  earlier.end_reason = "stopped";
  const auto records = checked(earlier, 200);
  ASSERT_EQ(records.size(), 1U);
  EXPECT_EQ(records[0].attempt, 4);
  EXPECT_EQ(records[0].at(Phase::planned_stop), 100);
}

TEST(EarlierAttempts, steps_of_a_killed_process_since_its_last_record_are_lost) {
  const auto records = checked(killed_at(100, 104), 200);
  ASSERT_EQ(records.size(), 2U);
  EXPECT_EQ(records[0].attempt, 3);
  EXPECT_TRUE(records[0].is_of_next);
  EXPECT_EQ(records[0].at(Phase::repeated), 4);
  EXPECT_EQ(records[1].attempt, 4);
  EXPECT_EQ(records[1].at(Phase::queue), 96);
}

TEST(EarlierAttempts, a_verdict_divides_the_time_after_a_failure) {
  EarlierAttempts earlier = killed_at(100, 109);  // the process hung, and renewed its lease
  earlier.verdict =
      EarlierAttempts::Verdict{.failed_at = 105, .time = 108, .ended_at = 110, .restarts = true};
  const auto records = checked(earlier, 120);
  ASSERT_EQ(records.size(), 4U);
  EXPECT_EQ(records[0].at(Phase::repeated), 5);
  EXPECT_EQ(records[1].at(Phase::detect), 3);
  EXPECT_EQ(records[2].at(Phase::abort), 2);
  EXPECT_EQ(records[3].at(Phase::reform), 10);
}

TEST(EarlierAttempts, a_process_that_took_over_begins_before_the_end_of_the_other) {
  EXPECT_TRUE(records_between(killed_at(100, 100), 4, 99).empty());
}

TEST(Stragglers, are_compared_within_their_stage_and_by_their_work) {
  spec::Sizes mesh;
  mesh[spec::Axis::pp] = 2;
  mesh[spec::Axis::dp] = 4;
  std::vector<obs::RankSample> samples(8);
  for (size_t rank = 0; rank < samples.size(); ++rank) {
    const bool is_first = spec::coord_of(mesh, static_cast<int>(rank))[spec::Axis::pp] == 0;
    samples[rank][obs::RankColumn::compute_seconds] = is_first ? 1.0F : 3.0F;
    samples[rank][obs::RankColumn::work] = 1;
  }
  EXPECT_EQ(straggler_seconds(mesh, samples), 0) << "stages may differ";
  samples[1][obs::RankColumn::compute_seconds] *= 1.02F;
  EXPECT_EQ(straggler_seconds(mesh, samples), 0) << "noise";
  samples[1][obs::RankColumn::compute_seconds] *= 1.25F;
  EXPECT_GT(straggler_seconds(mesh, samples), 0.2);
  samples[1][obs::RankColumn::work] = 1.275F;
  EXPECT_EQ(straggler_seconds(mesh, samples), 0) << "it has more work";
}

TEST(AlertRules, each_rule_reports_once_when_it_becomes_true) {
  const config::Alerts config{.max_unsaved_seconds = 10, .slow_logs = 2, .skipped_steps = 3};
  RunPrediction prediction;
  prediction.seconds = 1;
  prediction.band = 0.5;
  AlertRules rules(config, prediction, true, 0);
  for (int step = 1; step <= 2; ++step) EXPECT_FALSE(rules.add_step(step, true));
  const auto skips = rules.add_step(3, true);
  ASSERT_TRUE(skips);
  EXPECT_EQ(skips->rule, "skipped_steps");
  EXPECT_FALSE(rules.add_step(4, true));
  for (int step = 5; step <= 104; ++step) EXPECT_FALSE(rules.add_step(step, false));
  EXPECT_FALSE(rules.add_step(105, true));
  EXPECT_FALSE(rules.add_step(106, true));
  EXPECT_TRUE(rules.add_step(107, true)) << "after it was false";

  EXPECT_FALSE(rules.add_log(10, 1.6));
  EXPECT_FALSE(rules.add_log(20, 1.4)) << "inside the band";
  EXPECT_FALSE(rules.add_log(30, 1.6));
  EXPECT_TRUE(rules.add_log(40, 1.6));
  EXPECT_FALSE(rules.add_log(50, 1.6));

  EXPECT_FALSE(rules.look(9));
  EXPECT_TRUE(rules.look(10));
  EXPECT_FALSE(rules.look(11));
  rules.saved(12);
  EXPECT_FALSE(rules.look(21));
  EXPECT_TRUE(rules.look(22));
}

TEST(AlertRules, zero_and_a_missing_prediction_switch_rules_off) {
  RunPrediction prediction;
  prediction.why = "no machine file";
  AlertRules rules({.max_unsaved_seconds = 0, .slow_logs = 1, .skipped_steps = 0}, prediction, true,
                   0);
  EXPECT_FALSE(rules.add_step(1, true));
  EXPECT_FALSE(rules.add_log(1, 1e9));
  EXPECT_FALSE(rules.look(1e9));
  AlertRules unsaved({.max_unsaved_seconds = 1}, prediction, false, 0);
  EXPECT_FALSE(unsaved.look(1e9)) << "the run saves nothing";
}

TEST(StepLines, a_logged_step_extends_its_line) {
  double now = 1;
  StepLines lines([&now] { return now; });
  engine::StepSignals signals;
  signals.mean_loss = 2;
  lines.add(1, signals, 10);
  lines.add(2, signals, 20);
  EXPECT_FALSE(lines.is_due());
  const std::vector<obs::Metric> more = {{"grad_norm", 7}, {"mfu(%)", 40}};
  const auto all = lines.extend(2, more);
  EXPECT_EQ(all.back().name, "mfu(%)");
  EXPECT_EQ(lines.lines().size(), 2U);
  EXPECT_EQ(lines.lines()[1].metrics.size(), lines.lines()[0].metrics.size() + 1);
  now = 1.2;
  EXPECT_TRUE(lines.is_due());
  lines.clear();
  EXPECT_TRUE(lines.is_empty());
  EXPECT_EQ(lines.extend(3, more).size(), 2U) << "a step without signals has a line, too";
}

}  // namespace
}  // namespace trireme::train
