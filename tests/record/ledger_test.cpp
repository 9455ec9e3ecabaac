// SPDX-License-Identifier: Apache-2.0
// Every second of a run is in exactly one class, however its attempts end.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <fstream>
#include <map>

#include "base/rng.h"
#include "comm/gloo.h"
#include "obs/clock.h"
#include "tests/record/record_rig.h"

namespace trireme::tests {
namespace {

using obs::EventKind;
using obs::Phase;

class RecordTest : public testing::Test {
 protected:
  void SetUp() override { write_record_run(scratch_); }

  // Runs `train`; the arguments are added.
  Outcome train(const Words& more) {
    Words words = {"train", "stops.toml"};
    words.insert(words.end(), more.begin(), more.end());
    return trireme(scratch_, words);
  }
  // Starts an endless `train`, waits until ten steps are recorded, and sends the signal.
  Outcome train_until(int signal, const Words& more) {
    Words words = {"train", "stops.toml"};
    words.insert(words.end(), more.begin(), more.end());
    Running running(scratch_.path(), trireme_command(words));
    const int64_t before = has_spans() ? spans(scratch_).back().attempt : 0;
    EXPECT_TRUE(running.wait_for([&] {
      return has_spans() && spans(scratch_).back().attempt > before &&
             spans(scratch_).back().last_step >= 10;
    })) << running.err();
    running.signal(signal);
    return running.wait();
  }
  bool has_spans() const { return scratch_.has("run/phases.jsonl") && !spans(scratch_).empty(); }

  const Scratch scratch_;
};

TEST_F(RecordTest, a_run_that_ends_normally_closes) {
  const double before = obs::wall_seconds();
  ASSERT_EQ(train({"--training.steps=30", "--validation.enable=true", "--validation.freq=10",
                   "--system.price_per_hour=3.6"})
                .exit_code,
            exit_done);
  const double after = obs::wall_seconds();
  const analysis::Ledger ledger = expect_closed(scratch_);
  ASSERT_EQ(ledger.attempts.size(), 1U);
  EXPECT_EQ(ledger.attempts[0].end_reason, "done");
  EXPECT_EQ(ledger.attempts[0].steps, 30);
  EXPECT_EQ(ledger.tokens.trained, 30 * 4 * 16);
  EXPECT_GE(ledger.attempts[0].begin, before);
  EXPECT_LE(ledger.attempts[0].end, after);
  for (const Phase phase : {Phase::startup, Phase::warmup, Phase::useful, Phase::validation,
                            Phase::exposed_save, Phase::exporting, Phase::closing}) {
    EXPECT_GT(seconds_of(ledger, phase), 0) << name_of(phase);
  }
  const base::Json written = base::Json::parse(scratch_.read("run/ledger.json"));
  EXPECT_EQ(written, to_json(ledger));
  EXPECT_EQ(written.at("price_per_hour"), 3.6);
  const double hours = written.at("device_hours").at("useful").get<double>();
  EXPECT_DOUBLE_EQ(written.at("dollars").at("useful").get<double>(), 3.6 * hours);
}

TEST_F(RecordTest, a_stopped_run_closes_and_the_pause_is_planned) {
  EXPECT_EQ(train_until(SIGTERM, {}).exit_code, exit_stopped);
  const int64_t stopped_at = expect_closed(scratch_).attempts.at(0).last_step;
  ASSERT_EQ(events_of(scratch_, EventKind::preempt).size(), 1U);
  const Outcome second =
      train({"--resume=auto", fmt::format("--training.steps={}", stopped_at + 10)});
  ASSERT_EQ(second.exit_code, exit_done) << second.err;
  const analysis::Ledger ledger = expect_closed(scratch_);
  ASSERT_EQ(ledger.attempts.size(), 2U);
  EXPECT_EQ(ledger.attempts[0].end_reason, "stopped");
  EXPECT_GT(seconds_of(ledger, Phase::planned_stop), 0);
  EXPECT_EQ(seconds_of(ledger, Phase::repeated), 0) << "the stop has saved the last step";
  EXPECT_TRUE(ledger.failures.empty());
  EXPECT_EQ(ledger.tokens.trained, (stopped_at + 10) * 4 * 16);
}

TEST_F(RecordTest, killed_and_resumed_attempts_close_and_repeated_steps_count_once) {
  for (int kill = 0; kill < 3; ++kill) {
    (void)train_until(SIGKILL, {"--resume=auto", "--checkpoint.interval=1000000"});
  }
  int64_t last = 0;  // of any attempt
  for (const obs::PhaseRecord& span : spans(scratch_)) last = std::max(last, span.last_step);
  ASSERT_GT(last, 0);
  const Outcome final_attempt =
      train({"--resume=auto", fmt::format("--training.steps={}", last + 20)});
  ASSERT_EQ(final_attempt.exit_code, exit_done) << final_attempt.err;
  const analysis::Ledger ledger = expect_closed(scratch_);
  ASSERT_EQ(ledger.attempts.size(), 4U);
  ASSERT_EQ(ledger.failures.size(), 3U);
  for (const analysis::LedgerFailure& failure : ledger.failures) {
    EXPECT_GT(failure.lost_seconds, 0);
    EXPECT_GT(failure.restart_seconds, 0);
  }
  EXPECT_EQ(ledger.attempts[0].end_reason, "died");
  EXPECT_EQ(ledger.attempts[3].end_reason, "done");
  EXPECT_GT(seconds_of(ledger, Phase::queue), 0);
  // No checkpoint existed: every attempt began with step 1, and every step is trained once.
  EXPECT_EQ(ledger.tokens.trained, (last + 20) * 4 * 16);
  EXPECT_GT(ledger.tokens.repeated, 0);
}

// Returns the hash of the samples that a step must consume: those that follow the step before.
double samples_of_step(int64_t step) {
  constexpr int64_t batch = 4;
  uint64_t sum = 0;
  for (int64_t sample = (step - 1) * batch; sample < step * batch; ++sample) {
    sum += base::hash_of(static_cast<uint64_t>(sample));
  }
  return static_cast<double>(sum & ((uint64_t{1} << 53) - 1));
}

// Expects that steps 1 to `last` have each consumed their samples, in every attempt that made them:
// the ids of all steps are a permutation, none is lost and none doubled. Returns how many steps
// were made more than once. REQUIRES: every step was logged.
int64_t expect_all_samples(const Scratch& scratch, int64_t last) {
  std::map<int64_t, int64_t> times;
  for (const base::Json& line : train_lines(scratch)) {
    const auto step = line.at("step").get<int64_t>();
    ++times[step];
    EXPECT_EQ(line.at("samples").get<double>(), samples_of_step(step)) << "step " << step;
  }
  EXPECT_EQ(std::ssize(times), last);
  EXPECT_EQ(times.begin()->first, 1);
  EXPECT_EQ(times.rbegin()->first, last);
  return std::ranges::count_if(times, [](const auto& of_step) { return of_step.second > 1; });
}

TEST_F(RecordTest, after_kills_on_any_ranks_no_sample_is_lost_or_doubled) {
  for (const char* degree : {"2", "1", "4"}) {
    (void)train_until(SIGKILL,
                      {"--resume=auto", "--metrics.log_freq=1", "--checkpoint.interval=7",
                       fmt::format("--parallelism.data_parallel_shard_degree={}", degree)});
  }
  int64_t last = 0;  // of any attempt
  for (const obs::PhaseRecord& span : spans(scratch_)) last = std::max(last, span.last_step);
  const Outcome final_attempt =
      train({"--resume=auto", "--metrics.log_freq=1", "--parallelism.data_parallel_shard_degree=2",
             fmt::format("--training.steps={}", last + 20)});
  ASSERT_EQ(final_attempt.exit_code, exit_done) << final_attempt.err;
  EXPECT_GT(expect_all_samples(scratch_, last + 20), 0) << "a kill loses the steps since the save";
}

TEST_F(RecordTest, a_run_whose_data_changes_fails_and_closes) {
  Running running(scratch_.path(), trireme_command({"train", "stops.toml"}));
  ASSERT_TRUE(running.wait_for([&] { return has_spans() && spans(scratch_).size() > 2; }));
  // Its beginning is overwritten, and it keeps its length: a batch beyond the end of a cut file
  // would end the process by a signal, without a record.
  std::fstream(scratch_.path() / "text.txt", std::ios::in | std::ios::out) << "other text";
  const Outcome outcome = running.wait();
  EXPECT_EQ(outcome.exit_code, exit_failed) << outcome.err;
  const analysis::Ledger ledger = expect_closed(scratch_);
  ASSERT_EQ(ledger.attempts.size(), 1U);
  EXPECT_EQ(ledger.attempts[0].end_reason, "failed");
  ASSERT_EQ(ledger.failures.size(), 1U);
  EXPECT_NE(ledger.failures[0].reason.find("text.txt"), std::string::npos)
      << ledger.failures[0].reason;
}

TEST_F(RecordTest, the_launcher_records_its_verdict_and_the_restart) {
  if (!comm::gloo_status().empty()) GTEST_SKIP() << comm::gloo_status();
  Job job(scratch_, {.ranks = 2,
                     .train_words = {"--alerts.command=cat > alert.json"},
                     .launch_words = {"--no-elastic", "--restarts=1"}});
  ASSERT_TRUE(job.wait_for([&] { return has_spans() && spans(scratch_).size() > 2; })) << job.log();
  std::mt19937 random(1);
  job.stop(Stop::kill_rank, random);
  ASSERT_TRUE(job.wait_for([&] {
    return spans(scratch_).back().attempt == 2 && spans(scratch_).back().last_step > 0;
  })) << job.log();
  job.stop(Stop::terminate, random);
  (void)job.wait();
  const analysis::Ledger ledger = expect_closed(scratch_);
  ASSERT_EQ(ledger.attempts.size(), 2U) << job.log();
  ASSERT_EQ(ledger.failures.size(), 1U);
  const std::vector<obs::Event> verdicts = events_of(scratch_, EventKind::verdict);
  ASSERT_EQ(verdicts.size(), 1U);
  EXPECT_EQ(ledger.failures[0].reason, verdicts[0].text);
  EXPECT_GE(verdicts[0].rank, 0) << verdicts[0].text;
  EXPECT_GT(seconds_of(ledger, Phase::abort), 0);
  EXPECT_GT(seconds_of(ledger, Phase::reform), 0);
  EXPECT_EQ(seconds_of(ledger, Phase::queue), 0);
  const base::Json alert = base::Json::parse(scratch_.read("alert.json"));
  EXPECT_EQ(alert.at("data").at("rule"), "verdict");
}

TEST_F(RecordTest, a_rank_that_is_replaced_repeats_steps_with_the_same_samples) {
  if (!comm::gloo_status().empty()) GTEST_SKIP() << comm::gloo_status();
  Job job(scratch_, {.ranks = 2, .train_words = {"--metrics.log_freq=1"}, .launch_words = {}});
  ASSERT_TRUE(job.wait_for([&] { return has_spans() && spans(scratch_).back().last_step > 20; }))
      << job.log();
  std::mt19937 random(1);
  job.stop(Stop::kill_rank, random);
  ASSERT_TRUE(job.wait_for([&] { return !events_of(scratch_, EventKind::replan).empty(); }))
      << job.log();
  const int64_t before = spans(scratch_).back().last_step;
  ASSERT_TRUE(job.wait_for([&] { return spans(scratch_).back().last_step > before + 20; }))
      << job.log();
  job.stop(Stop::terminate, random);
  (void)job.wait();
  (void)expect_all_samples(scratch_, spans(scratch_).back().last_step);
  EXPECT_TRUE(events_of(scratch_, EventKind::hardware).empty()) << job.log();
}

TEST_F(RecordTest, overwriting_a_run_removes_its_record) {
  ASSERT_EQ(train({"--training.steps=3"}).exit_code, exit_done);
  ASSERT_EQ(train({"--training.steps=3", "--overwrite"}).exit_code, exit_done);
  const analysis::Ledger ledger = expect_closed(scratch_);
  EXPECT_EQ(ledger.attempts.size(), 1U);
  EXPECT_EQ(train_lines(scratch_).size(), 3U);
}

}  // namespace
}  // namespace trireme::tests
