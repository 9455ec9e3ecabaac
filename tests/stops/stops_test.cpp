// SPDX-License-Identifier: Apache-2.0
// A run that is stopped in every way that launchers, schedulers and users have, at random moments,
// also while it starts, and resumed each time on another number of ranks: after a stop on request
// it resumes at the step that it printed, after a kill at the newest committed checkpoint, and the
// final weights are those of a run that was not stopped.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <iostream>
#include <random>

#include "comm/gloo.h"
#include "tests/stops/stops_rig.h"

namespace trireme::tests {
namespace {

double uniform(std::mt19937& random, double high) {
  return high * static_cast<double>(random() % 1000) / 1000;
}

// Approximate seconds from the start of a launcher to the first step.
double start_seconds(LauncherKind launcher) { return launcher == LauncherKind::torchrun ? 4 : 0.7; }

class Stops : public testing::TestWithParam<LauncherKind> {
 protected:
  void SetUp() override {
    if (!comm::gloo_status().empty()) GTEST_SKIP() << comm::gloo_status();
    if (GetParam() != LauncherKind::launch && !is_full()) GTEST_SKIP() << "only with TRIREME_FULL";
    const std::string problem = problem_of(GetParam());
    if (!problem.empty()) GTEST_SKIP() << problem;
    random_.seed(printed_seed(name_of(GetParam())));
    write_stops_run(scratch_);
  }

  // Returns a start by the launcher under test, every fourth time by another one.
  JobOptions drawn_job(const Words& more) {
    JobOptions options{.launcher = GetParam(), .ranks = 1 << (random_() % 3)};
    if (is_full() && random_() % 4 == 0) {
      const LauncherKind other = all_launchers[random_() % std::size(all_launchers)];
      if (problem_of(other).empty()) options.launcher = other;
    }
    options.train_words = {"--resume", "auto"};
    if (expected_ >= 0) {  // open keys take the saved values, on any number of ranks
      options.train_words.push_back("--parallelism.logical_dp=0");
      options.train_words.push_back("--training.global_batch_size=-1");
    }
    if (random_() % 2 == 0) {  // copies instead of shards (ZeRO-3)
      options.train_words.push_back("--parallelism.data_parallel_shard_degree=1");
      options.train_words.push_back("--parallelism.data_parallel_replicate_degree=-1");
    }
    options.train_words.insert(options.train_words.end(), more.begin(), more.end());
    return options;
  }

  // Runs one start that ends by `stop`, and checks where it began and what it saved.
  void stop_once(int number, Stop stop) {
    const bool starts = random_() % 4 == 0;
    JobOptions drawn = drawn_job({});
    // Otherwise the job goes on (tests/launch: Elastic, Guardian).
    const bool is_survived = stop == Stop::kill_rank || stop == Stop::kill_launcher;
    if (is_survived && drawn.launcher == LauncherKind::launch) {
      drawn.train_words.emplace_back("--no-elastic");
    }
    Job job(scratch_, drawn);
    const LauncherKind launcher = job.options().launcher;
    const std::string what = fmt::format("stop {}: {} of {} with {} ranks{}, from step {}", number,
                                         name_of(stop), name_of(launcher), job.options().ranks,
                                         starts ? ", while it starts" : "", expected_);
    SCOPED_TRACE(what);
    if (starts) {
      job.pass(uniform(random_, start_seconds(launcher)));
    } else {
      ASSERT_TRUE(job.wait_for_step()) << job.log();
      job.pass(uniform(random_, 0.6));
    }
    ASSERT_FALSE(job.has_ended()) << job.log();
    const bool had_begun = last_step(job.log()).has_value();
    job.stop(stop, random_);
    const Outcome outcome = job.wait();
    const std::string log = job.log();
    check_resume(log);
    const std::optional<int64_t> saved = saved_step(log);
    const int64_t newest = newest_checkpoint(scratch_);
    EXPECT_GE(newest, expected_) << "a committed checkpoint is gone\n" << log;
    if (is_request(stop) && had_begun) {
      ++requests_;
      if (saved) ++saved_;
      EXPECT_TRUE(saved) << log;
      const std::vector<int> codes = codes_of_saved(launcher, stop);
      EXPECT_NE(std::find(codes.begin(), codes.end(), outcome.exit_code), codes.end())
          << "exit code " << outcome.exit_code << "\n"
          << log;
    }
    EXPECT_EQ(saved.value_or(newest), newest) << log;
    if (stop == Stop::kill_rank && launcher == LauncherKind::launch) {
      EXPECT_EQ(outcome.exit_code, exit_failed) << log;
    }
    if (stop == Stop::dead_pipe && had_begun && launcher == LauncherKind::launch) {
      EXPECT_EQ(outcome.exit_code, exit_stopped);
    }
    EXPECT_FALSE(scratch_.has(final_weights)) << log;
    if (HasFailure()) {
      std::cout << what
                << fmt::format(": exit code {}, saved {}, newest {}\n", outcome.exit_code,
                               saved.value_or(-1), newest);
    }
    expected_ = newest;
  }

  void check_resume(const std::string& log) {
    const std::optional<int64_t> resumed = resumed_step(log);
    if (!resumed) {
      EXPECT_FALSE(last_step(log)) << "steps without a line of the resume\n" << log;
      return;  // it was stopped before that
    }
    ++resumes_;
    EXPECT_EQ(*resumed, expected_) << log;
  }

  // Runs 20 more steps without a stop and compares the weights with those of an undisturbed run.
  void finish() {
    const int64_t steps = std::max<int64_t>(expected_, 0) + 20;
    JobOptions options = drawn_job({fmt::format("--training.steps={}", steps)});
    options.launcher = GetParam();
    Job job(scratch_, options);
    const Outcome outcome = job.wait();
    ASSERT_EQ(outcome.exit_code, exit_done) << job.log();
    ASSERT_TRUE(resumed_step(job.log())) << job.log();
    check_resume(job.log());
    ASSERT_TRUE(scratch_.has(final_weights));
    EXPECT_EQ(sha256_of(scratch_.read(final_weights)), sha256_of(quiet_weights(steps)));
    const Outcome verified = trireme(scratch_, {"ckpt", "verify", "run"});
    EXPECT_EQ(verified.exit_code, 0) << verified.err;
  }

  std::mt19937 random_;
  Scratch scratch_;
  int64_t expected_ = -1;  // the step at which the next start must resume
  int requests_ = 0, saved_ = 0, resumes_ = 0;
};

TEST_P(Stops, a_stopped_run_resumes_bit_identically) {
  const int stops = is_full() ? 40 : 3;
  std::vector<Stop> deck;
  for (int i = 0; i < stops; ++i) {
    if (deck.empty()) {
      deck.assign(std::begin(all_stops), std::end(all_stops));
      std::shuffle(deck.begin(), deck.end(), random_);
    }
    stop_once(i, deck.back());
    if (HasFatalFailure()) return;
    deck.pop_back();
  }
  finish();
  EXPECT_GT(resumes_, 0);
  std::cout << fmt::format(
      "{}: {} stops, {} of {} requests after the first step saved, {} of {} starts seen to resume, "
      "{} steps\n",
      name_of(GetParam()), stops, saved_, requests_, resumes_, stops + 1, expected_ + 20);
}

INSTANTIATE_TEST_SUITE_P(launchers, Stops, testing::ValuesIn(all_launchers),
                         [](const auto& launcher) { return name_of(launcher.param); });

// `launch --restarts` restarts the job automatically when a rank dies, but not after a request to
// stop.
TEST(Restarts, ranks_that_die_are_restarted) {
  if (!comm::gloo_status().empty()) GTEST_SKIP() << comm::gloo_status();
  std::mt19937 random(printed_seed("restarts"));
  const Scratch scratch;
  write_stops_run(scratch);
  const int kills = is_full() ? 10 : 1;
  const int64_t steps = 100 * (kills + 1);
  Job job(scratch, {.ranks = 2,
                    .train_words = {"--resume", "auto", fmt::format("--training.steps={}", steps),
                                    "--parallelism.data_parallel_shard_degree=1",
                                    "--parallelism.data_parallel_replicate_degree=-1"},
                    .launch_words = {"--restarts", std::to_string(kills)}});
  for (int kill = 0; kill < kills; ++kill) {
    const int64_t from = newest_checkpoint(scratch);
    ASSERT_TRUE(job.wait_for([&] { return newest_checkpoint(scratch) > from; })) << job.log();
    job.pass(uniform(random, 0.05));
    job.stop(Stop::kill_rank, random);
  }
  const Outcome outcome = job.wait();
  ASSERT_EQ(outcome.exit_code, exit_done) << job.log();
  EXPECT_EQ(sha256_of(scratch.read(final_weights)), sha256_of(quiet_weights(steps)));
}

TEST(Restarts, a_request_to_stop_causes_no_restart) {
  if (!comm::gloo_status().empty()) GTEST_SKIP() << comm::gloo_status();
  std::mt19937 random(1);  // NOLINT(cert-msc51-cpp): no number is used
  const Scratch scratch;
  write_stops_run(scratch);
  Job job(scratch,
          {.ranks = 2, .train_words = {"--resume", "auto"}, .launch_words = {"--restarts", "3"}});
  ASSERT_TRUE(job.wait_for_step()) << job.log();
  job.stop(Stop::terminate, random);
  EXPECT_EQ(job.wait().exit_code, exit_stopped) << job.log();
  EXPECT_EQ(saved_step(job.log()), newest_checkpoint(scratch)) << job.log();
}

}  // namespace
}  // namespace trireme::tests
