// SPDX-License-Identifier: Apache-2.0
// A notice that the machine is about to be taken away, by file and by command, to `train` and to
// `launch`: the run saves, ends with 75 and records who told it; the next start goes on from there.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "comm/gloo.h"
#include "obs/files/event_log.h"
#include "tests/stops/stops_rig.h"

namespace trireme::tests {
namespace {

struct Case {
  LauncherKind launcher;
  int ranks;
  std::string key, value;
  std::string source;
};

class Notices : public testing::Test {
 protected:
  void SetUp() override { write_stops_run(scratch_); }

  // Returns the events of this kind.
  std::vector<obs::Event> events(obs::EventKind kind) const {
    std::vector<obs::Event> found = obs::read_events(scratch_.at("run"));
    std::erase_if(found, [kind](const obs::Event& event) { return event.kind != kind; });
    return found;
  }
  // Starts the run, waits for a step, gives the notice, and returns the step that was saved.
  void stop_by_notice(const Case& given) {
    std::filesystem::remove(scratch_.at("notice"));
    Job job(scratch_,
            {.launcher = given.launcher,
             .ranks = given.ranks,
             .train_words = {"--resume=auto", fmt::format("--{}={}", given.key, given.value),
                             "--elastic.grace_s=30"}});
    ASSERT_TRUE(job.wait_for_step()) << job.log();
    scratch_.write("notice", "");
    const Outcome outcome = job.wait();
    const std::string log = job.log();
    EXPECT_EQ(outcome.exit_code, exit_stopped) << log;
    EXPECT_EQ(resumed_step(log).value_or(-1), expected_) << log;
    const std::optional<int64_t> saved = saved_step(log);
    ASSERT_TRUE(saved) << log;
    EXPECT_EQ(*saved, newest_checkpoint(scratch_));
    expected_ = *saved;
    const std::vector<obs::Event> notices = events(obs::EventKind::notice);
    ASSERT_EQ(std::ssize(notices), ++given_) << log;
    EXPECT_EQ(notices.back().data.at("source"), given.source);
    EXPECT_EQ(notices.back().data.at("what"), given.value);
    EXPECT_EQ(notices.back().attempt, given_);
    EXPECT_NE(log.find("a stop takes "), std::string::npos) << log;
  }

  Scratch scratch_;
  int64_t expected_ = -1;
  int64_t given_ = 0;
};

TEST_F(Notices, a_notice_saves_and_stops) {
  std::vector<Case> cases = {{LauncherKind::train, 1, "elastic.notice_file", "notice", "file"},
                             {LauncherKind::launch, 2, "elastic.notice_file", "notice", "file"}};
  if (is_full()) {
    cases.push_back(
        {LauncherKind::launch, 4, "elastic.notice_command", "test -e notice", "command"});
    cases.push_back(
        {LauncherKind::train, 1, "elastic.notice_command", "test -e notice", "command"});
  }
  for (const Case& given : cases) {
    SCOPED_TRACE(fmt::format("{} {}", name_of(given.launcher), given.source));
    if (given.ranks > 1 && !comm::gloo_status().empty()) continue;
    stop_by_notice(given);
    if (HasFatalFailure()) return;
  }
}

TEST_F(Notices, a_command_that_cannot_be_started_is_refused_before_the_run) {
  for (const Words& words : {Words{"train"}, Words{"launch", "-n", "1"}}) {
    Words all = words;
    all.insert(all.end(), {"stops.toml", "--elastic.notice_command=no_such_program --now"});
    const Outcome outcome = trireme(scratch_, all);
    EXPECT_EQ(outcome.exit_code, exit_bad_call) << outcome.err;
    EXPECT_NE(outcome.err.find("elastic.notice_command = \"no_such_program --now\": the shell "
                               "cannot start it"),
              std::string::npos)
        << outcome.err;
    EXPECT_FALSE(scratch_.has("run"));
  }
}

}  // namespace
}  // namespace trireme::tests
