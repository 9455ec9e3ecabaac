// SPDX-License-Identifier: Apache-2.0
// Programs that follow a run: they receive every line, and can neither delay nor end it.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "tests/record/record_rig.h"

namespace trireme::tests {
namespace {

using obs::EventKind;

class FollowersTest : public testing::Test {
 protected:
  void SetUp() override { write_record_run(scratch_); }
  Outcome train(const Words& more) {
    Words words = {"train", "stops.toml", "--training.steps=20"};
    words.insert(words.end(), more.begin(), more.end());
    return trireme(scratch_, words);
  }

  const Scratch scratch_;
};

TEST_F(FollowersTest, a_command_receives_every_line_of_metrics_and_events) {
  ASSERT_EQ(train({"--metrics.command=cat > copy.jsonl", "--job.group=trials"}).exit_code,
            exit_done);
  const std::vector<base::Json> copy = json_lines(scratch_.read("copy.jsonl"));
  ASSERT_FALSE(copy.empty());
  EXPECT_EQ(copy[0].at("kind"), "run");
  EXPECT_EQ(copy[0].at("group"), "trials");
  EXPECT_EQ(copy[0].at("config").at("job").at("group"), "trials");
  std::string events, metrics;
  for (size_t i = 1; i < copy.size(); ++i) {
    (copy[i].contains("severity") ? events : metrics) += copy[i].dump() + "\n";
  }
  const auto same_lines = [&](const std::string& file) {
    std::string text;
    for (const base::Json& line : json_lines(scratch_.read(file))) text += line.dump() + "\n";
    return text;
  };
  EXPECT_EQ(metrics, same_lines("run/metrics.jsonl"));
  EXPECT_EQ(events, same_lines("run/events.jsonl"));
}

TEST_F(FollowersTest, a_command_that_never_reads_does_not_stop_the_run) {
  ASSERT_EQ(train({"--metrics.command=exec sleep 2"}).exit_code, exit_done);
  EXPECT_EQ(train_lines(scratch_).size(), 20U);
  expect_closed(scratch_);
}

TEST_F(FollowersTest, a_command_that_ends_at_once_gives_a_warning) {
  const Outcome outcome = train({"--metrics.command=exit 3"});
  ASSERT_EQ(outcome.exit_code, exit_done);
  EXPECT_EQ(train_lines(scratch_).size(), 20U);
  const std::vector<obs::Event> alerts = events_of(scratch_, EventKind::alert);
  ASSERT_FALSE(alerts.empty());
  EXPECT_EQ(alerts.back().data.at("rule"), "metrics_command");
  EXPECT_EQ(events_of(scratch_, EventKind::end).size(), 1U);
  expect_closed(scratch_);
}

TEST_F(FollowersTest, what_a_command_prints_is_not_in_the_result) {
  const base::Json result =
      trireme_json(scratch_, {"train", "stops.toml", "--training.steps=3",
                              "--metrics.command=echo noise; cat > /dev/null"});
  EXPECT_EQ(result.at("steps"), 3);
}

TEST_F(FollowersTest, no_checkpoint_for_too_long_starts_the_alert_command) {
  ASSERT_EQ(trireme(scratch_, {"train", "stops.toml", "--training.steps=4000",
                               "--checkpoint.interval=1000000", "--alerts.max_unsaved_seconds=0.1",
                               "--alerts.slow_logs=0", "--alerts.command=cat >> alerts.jsonl"})
                .exit_code,
            exit_done);
  const std::vector<base::Json> alerts = json_lines(scratch_.read("alerts.jsonl"));
  ASSERT_EQ(alerts.size(), 1U) << "reported once";
  EXPECT_EQ(alerts[0].at("kind"), "alert");
  EXPECT_EQ(alerts[0].at("data").at("rule"), "no_rollback_target");
}

TEST_F(FollowersTest, a_webhook_that_is_no_address_is_refused) {
  const Outcome outcome = train({"--alerts.webhook=ftp://host"});
  EXPECT_EQ(outcome.exit_code, exit_bad_call);
  EXPECT_NE(outcome.err.find("alerts.webhook"), std::string::npos) << outcome.err;
  EXPECT_FALSE(scratch_.has("run"));
}

// Writes a module that records its calls to calls.jsonl.
void write_fake_module(const Scratch& scratch, const std::string& name) {
  scratch.write(name + ".py",
                "import json\n"
                "class Recorder:\n"
                "    def __getattr__(self, name):\n"
                "        def call(*args, **kwargs):\n"
                "            with open('calls.jsonl', 'a') as out:\n"
                "                out.write(json.dumps([name, args, kwargs]) + '\\n')\n"
                "            return self\n"
                "        return call\n"
                "import sys\n"
                "sys.modules[__name__] = Recorder()\n");
}

TEST_F(FollowersTest, the_bridges_pass_metrics_groups_and_job_types_on) {
  if (std::system("python3 -c 'import json' > /dev/null 2>&1") != 0) GTEST_SKIP() << "no python3";
  struct Bridge {
    const char *name, *log_call;
  };
  for (const Bridge& bridge : {Bridge{"wandb", "log"}, Bridge{"mlflow", "log_metrics"}}) {
    SCOPED_TRACE(bridge.name);
    write_fake_module(scratch_, bridge.name);
    scratch_.write("calls.jsonl", "");
    const Outcome outcome =
        train({fmt::format("--metrics.command=PYTHONPATH=. python3 {}/contrib/{}_bridge.py "
                           "--job-type trial",
                           TRIREME_SOURCE_DIR, bridge.name),
               "--job.group=experiment 7", "--overwrite"});
    ASSERT_EQ(outcome.exit_code, exit_done) << outcome.err;
    const std::string calls = scratch_.read("calls.jsonl");
    EXPECT_NE(calls.find("experiment 7"), std::string::npos) << calls;
    EXPECT_NE(calls.find("\"trial\""), std::string::npos) << calls;
    size_t logged = 0;
    for (size_t at = 0;
         (at = calls.find(fmt::format("[\"{}\"", bridge.log_call), at)) != std::string::npos;
         ++at) {
      ++logged;
    }
    EXPECT_GE(logged, 20U) << "every step\n" << outcome.err;
  }
}

}  // namespace
}  // namespace trireme::tests
