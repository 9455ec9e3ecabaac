// SPDX-License-Identifier: Apache-2.0
// `trireme chaos` against a run of processes: the report, an experiment that is interrupted and
// continued, refused options. TRIREME_FULL=1 adds ranks that are frozen and more disturbances.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "comm/gloo.h"
#include "tests/stops/stops_rig.h"

namespace trireme::tests {
namespace {

class Chaos : public testing::Test {
 protected:
  void SetUp() override {
    if (!comm::gloo_status().empty()) GTEST_SKIP() << comm::gloo_status();
    write_stops_run(scratch_);
  }

  static Words chaos(const Words& more) {
    Words words = {"chaos", "stops.toml", "-n",
                   "2",     "--seed=5",   "--parallelism.data_parallel_shard_degree=2"};
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }
  // Runs it, and expects that the run has survived all of it.
  base::Json report_of(const Words& more, int64_t kills) {
    const base::Json report = trireme_json(scratch_, chaos(more));
    EXPECT_EQ(report.value("done", -1), kills) << report.dump(1);
    EXPECT_EQ(report.value("weights_equal", false), true) << report.dump(1);
    EXPECT_EQ(report.value("lost_tokens", -1.0), 0);
    EXPECT_EQ(report.value("doubled_tokens", -1.0), 0);
    EXPECT_EQ(report.value("missing_steps", -1), 0);
    EXPECT_EQ(report.value("steps_with_another_loss", -1), 0);
    EXPECT_EQ(report.value("repeated_with_another_loss", -1), 0);
    return report;
  }

  Scratch scratch_;
};

TEST_F(Chaos, a_run_survives_and_an_interrupted_experiment_goes_on) {
  const Outcome quiet = trireme(
      scratch_, {"train", "stops.toml", "--training.steps=40", "--job.dump_folder=one-rank"});
  ASSERT_EQ(quiet.exit_code, exit_done) << quiet.err;
  const Words options = {"--kills=2", "--kinds=kill", "--training.steps=40",
                         "--quiet-run=one-rank"};
  Running running(scratch_.path(), trireme_command(chaos(options)));
  ASSERT_TRUE(running.wait_for([&] {
    return running.err().find("chaos     1 of 2: ") != std::string::npos;
  })) << running.err();
  running.signal(SIGTERM);
  const Outcome stopped = running.wait();
  EXPECT_EQ(stopped.exit_code, exit_stopped) << stopped.err;
  EXPECT_NE(stopped.err.find("--resume continues"), std::string::npos) << stopped.err;
  // The run has saved, and holds its folder no more.
  EXPECT_NE(scratch_.read("run-chaos/run.log").find("is saved"), std::string::npos);

  const Outcome again = trireme(scratch_, chaos(options));
  EXPECT_EQ(again.exit_code, exit_bad_call) << again.err;
  EXPECT_NE(again.err.find("continue it with --resume"), std::string::npos) << again.err;
  Words other = options;
  other.insert(other.end(), {"--resume", "--optimizer.lr=1e-4"});
  const Outcome changed = trireme(scratch_, chaos(other));
  EXPECT_EQ(changed.exit_code, exit_bad_call) << changed.err;
  EXPECT_NE(changed.err.find("with other options"), std::string::npos) << changed.err;

  Words resumed = options;
  resumed.emplace_back("--resume");
  const base::Json report = report_of(resumed, 2);
  EXPECT_EQ(report.at("names").at("wrong"), 0) << report.dump(1);
  EXPECT_EQ(report.at("names").at("missing"), 0) << report.dump(1);
  EXPECT_EQ(report.at("names").at("right"), report.at("next_step_seconds").at("kill").at("count"));
  EXPECT_EQ(sha256_of(scratch_.read("run-chaos/run/weights/final/model.safetensors")),
            report.at("weights_sha256"));
}

TEST_F(Chaos, processes_of_the_launcher_and_spares_may_die_too) {
  const base::Json report = report_of(
      {"--kills=7", "--kinds=kill,supervisor,guardian,spare", "--spares=3", "--training.steps=180"},
      7);
  const base::Json& times = report.at("next_step_seconds");
  for (const char* kind : {"supervisor", "guardian", "spare", "kill"}) {
    EXPECT_TRUE(times.at(kind).is_object()) << kind << ": " << report.dump(1);
  }
  EXPECT_EQ(report.at("exit_code"), 0);
  // A kill has one verdict, also if the supervisor is another one than at the start.
  EXPECT_EQ(report.at("names").at("right"), times.at("kill").at("count")) << report.dump(1);
  EXPECT_EQ(report.at("names").at("wrong"), 0) << report.dump(1);
}

TEST_F(Chaos, frozen_ranks_are_found_and_another_runs_weights_are_not_equal) {
  if (!is_full()) GTEST_SKIP() << "only with TRIREME_FULL";
  const base::Json report = report_of(
      {"--kills=12", "--kinds=kill,pause,freeze", "--training.steps=600", "--elastic.detect_s=2"},
      12);
  EXPECT_GT(report.at("next_step_seconds").at("freeze").at("count"), 0) << report.dump(1);
  EXPECT_EQ(report.at("names").at("wrong"), 0) << report.dump(1);
  // The control: compared with a run of another seed, the same experiment has not survived.
  ASSERT_EQ(trireme(scratch_, {"train", "stops.toml", "--training.steps=60", "--debug.seed=9",
                               "--job.dump_folder=other"})
                .exit_code,
            exit_done);
  const Outcome differs =
      trireme(scratch_, chaos({"--kills=1", "--kinds=kill", "--training.steps=60",
                               "--folder=differs", "--quiet-run=other"}));
  EXPECT_EQ(differs.exit_code, exit_failed) << differs.out;
  EXPECT_NE(differs.out.find("DIFFERENT: SHA-256"), std::string::npos) << differs.out;
}

// TRIREME_TRIALS: their number.
TEST_F(Chaos, verdicts_name_the_rank_that_died_or_froze) {
  if (!is_full()) GTEST_SKIP() << "only with TRIREME_FULL";
  const char* const given = std::getenv("TRIREME_TRIALS");
  const int trials = given == nullptr ? 200 : std::atoi(given);
  const Outcome outcome =
      trireme(scratch_,
              {"chaos", "stops.toml", "-n", "4", "--seed=11", fmt::format("--kills={}", trials),
               "--kinds=kill,kill,freeze", fmt::format("--training.steps={}", 40 * trials),
               "--parallelism.data_parallel_replicate_degree=4", "--elastic.detect_s=1", "--json"},
              {.deadline_seconds = 60.0 + 5 * trials});
  const base::Json report = only_object(outcome.out);
  ASSERT_TRUE(report.contains("names")) << outcome.err;
  EXPECT_EQ(report.at("names").at("right"), trials) << report.at("names");
  EXPECT_EQ(report.at("names").at("wrong"), 0);
  EXPECT_EQ(report.at("names").at("missing"), 0);
  fmt::print("{} trials: from the signal to the verdict {}\n", trials,
             report.at("verdict_seconds").dump());
}

TEST_F(Chaos, a_bad_call_is_refused_before_anything_is_written) {
  const std::vector<std::pair<Words, std::string>> cases = {
      {{"--kills=0"}, "--kills 0: from 1 to training.steps = "},
      {{"--kills=2000000"}, "--kills 2000000: from 1 to training.steps = 1000000"},
      {{"--kinds=kill,hug"}, "--kinds kill,hug: 'hug' is none; allowed are kill, pause and freeze"},
      {{"--kinds=spare"}, "to kill a spare there has to be one: --spares 1"},
      {{"-n", "1", "--kinds=guardian"}, "a launcher of one rank has neither supervisor nor"},
      {{"--seed=-1"}, "--seed -1: at least 0"},
      {{"-n", "0"}, "-n 0: at least 1"},
      {{"--checkpoint.export_folder="}, "it needs checkpoint.enable"},
      {{"--checkpoint.enable=false"}, "it needs checkpoint.enable"},
      {{"--quiet-run=nothing"}, "--quiet-run nothing: nothing/weights/final has no weights"},
      {{"--training.no_such_key=1"}, "no_such_key"}};
  const Tree before = scratch_.tree();
  for (const auto& [words, expected] : cases) {
    Words all = {"chaos", "stops.toml"};
    all.insert(all.end(), words.begin(), words.end());
    const Outcome outcome = trireme(scratch_, all);
    EXPECT_EQ(outcome.exit_code, exit_bad_call) << words[0] << "\n" << outcome.err;
    EXPECT_NE(outcome.err.find(expected), std::string::npos) << words[0] << "\n" << outcome.err;
  }
  EXPECT_EQ(scratch_.tree(), before);
}

}  // namespace
}  // namespace trireme::tests
