// SPDX-License-Identifier: Apache-2.0
// Ledgers of runs with failures, by hand-written spans and events.
#include "analysis/ledger.h"

#include <gtest/gtest.h>

#include "base/text/json.h"

namespace trireme::analysis {
namespace {

using obs::Phase;

obs::PhaseRecord span(int64_t attempt, double begin, double end, Phase phase) {
  obs::PhaseRecord record;
  record.attempt = attempt;
  record.begin = begin;
  record.end = end;
  record.at(phase) = end - begin;
  return record;
}

obs::Event event(int64_t attempt, obs::EventKind kind, base::Json data, std::string text = "") {
  obs::Event result;
  result.attempt = attempt;
  result.kind = kind;
  result.data = std::move(data);
  result.text = std::move(text);
  return result;
}

// Attempt 1 trains for 100 s and dies; attempt 2 loses 20 s of that, and ends.
LedgerBuilder two_attempts() {
  LedgerBuilder builder;
  builder.add(event(1, obs::EventKind::start, {{"devices", 8}, {"price_per_hour", 2.0}}));
  builder.add(event(1, obs::EventKind::verdict, {}, "rank 3 was killed"));
  builder.add(event(2, obs::EventKind::start, {{"devices", 8}, {"price_per_hour", 2.0}}));
  builder.add(event(2, obs::EventKind::end, {{"reason", "done"}}));
  builder.add(span(1, 0, 10, Phase::startup));
  obs::PhaseRecord steps = span(1, 10, 110, Phase::useful);
  steps.first_step = 1;
  steps.last_step = 100;
  steps.tokens.trained = 1000;
  builder.add(steps);
  obs::PhaseRecord lost = span(1, 110, 115, Phase::repeated);
  lost.is_of_next = true;
  builder.add(lost);
  builder.add(span(2, 115, 117, Phase::detect));
  builder.add(span(2, 117, 120, Phase::queue));
  obs::PhaseRecord repeated = span(2, 120, 140, Phase::repeated);
  repeated.first_step = 81;
  repeated.last_step = 100;
  repeated.tokens.repeated = 200;
  builder.add(repeated);
  return builder;
}

TEST(Ledger, charges_a_failure_with_what_was_repeated_and_waited) {
  const Ledger ledger = two_attempts().ledger(false);
  ASSERT_EQ(ledger.attempts.size(), 2U);
  for (const LedgerAttempt& attempt : ledger.attempts) EXPECT_EQ(attempt.sum_error_seconds(), 0);
  EXPECT_EQ(ledger.attempts[0].end_reason, "died");
  EXPECT_EQ(ledger.attempts[1].steps, 20);
  ASSERT_EQ(ledger.failures.size(), 1U);
  const LedgerFailure& failure = ledger.failures[0];
  EXPECT_EQ(failure.reason, "rank 3 was killed");
  EXPECT_EQ(failure.step, 100);
  EXPECT_EQ(failure.lost_seconds, 25);
  EXPECT_EQ(failure.lost_tokens, 200);
  EXPECT_EQ(failure.detect_seconds, 2);
  EXPECT_EQ(failure.restart_seconds, 3);
  EXPECT_DOUBLE_EQ(*failure.lost_dollars, 30 * 8 * 2.0 / 3600);
  EXPECT_EQ(ledger.tokens.trained, 1000);
  EXPECT_DOUBLE_EQ(ledger.useful_share(), 100.0 / 140);
  EXPECT_DOUBLE_EQ(ledger.device_hours[static_cast<size_t>(Phase::useful)], 100 * 8 / 3600.0);
}

TEST(Ledger, a_missing_span_is_shown_as_an_error_and_not_charged_to_a_class) {
  LedgerBuilder builder;
  builder.add(span(1, 0, 10, Phase::useful));
  builder.add(span(1, 12, 20, Phase::useful));
  const Ledger ledger = builder.ledger(true);
  EXPECT_EQ(ledger.attempts.at(0).end_reason, "running");
  EXPECT_EQ(ledger.attempts.at(0).sum_error_seconds(), 2);
  EXPECT_FALSE(ledger.has_dollars);
}

TEST(Ledger, an_experiment_is_the_sum_of_its_runs) {
  const Ledger one = two_attempts().ledger(false);
  const Ledger both = sum_of({one, one});
  EXPECT_EQ(both.attempts.size(), 4U);
  EXPECT_EQ(both.failures.size(), 2U);
  EXPECT_EQ(both.tokens.trained, 2000);
  EXPECT_DOUBLE_EQ(both.useful_share(), one.useful_share());
  const base::Json json = to_json(both);
  EXPECT_DOUBLE_EQ(json.at("dollars").at("useful").get<double>(), 2 * 100 * 8 * 2.0 / 3600);
}

TEST(PhaseRecord, a_line_reads_back) {
  obs::PhaseRecord record = span(2, 1700000000.25, 1700000001.5, Phase::useful);
  record.first_step = 3;
  record.last_step = 9;
  record.tokens = {.trained = 5, .masked = 1, .padding = 2, .skipped = 3, .repeated = 4};
  record.skipped_steps = 1;
  record.current = Phase::validation;
  const auto read = obs::phase_record_from(base::Json::parse(line_of(record)));
  ASSERT_TRUE(read);
  EXPECT_EQ(line_of(*read), line_of(record));
  EXPECT_EQ(read->begin, record.begin);
  EXPECT_FALSE(obs::phase_record_from(base::Json::parse(R"({"attempt":1.5,"begin":0,"end":1})")));
  EXPECT_FALSE(obs::phase_record_from(base::Json::parse("[1]")));
  const auto later = obs::phase_record_from(base::Json::parse(
      R"({"attempt":1,"begin":0,"end":1,"seconds":{"new_class":1,"useful":"x"}})"));
  ASSERT_TRUE(later);
  EXPECT_EQ(later->at(Phase::unknown), 1) << "a class of a later build";
}

}  // namespace
}  // namespace trireme::analysis
