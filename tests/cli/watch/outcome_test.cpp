// SPDX-License-Identifier: Apache-2.0
// Runs that diverge or find no room for their files: the exit code, the last lines, the events and
// the verbs that read the folder say the same.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <sstream>

#include "tests/cli/resume/resume_rig.h"

namespace trireme::tests {
namespace {

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

const Words diverges = {"--optimizer.lr=1000", "--training.clip=none",
                        "--lr_scheduler.warmup_steps=0", "--lr_scheduler.decay_type=constant"};

Words with(Words words, const Words& more) {
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

std::vector<base::Json> events_of(const Scratch& s) {
  std::vector<base::Json> events;
  std::istringstream lines(s.read("run/events.jsonl"));
  for (std::string line; std::getline(lines, line);) events.push_back(base::Json::parse(line));
  return events;
}

int64_t alerts_of(const Scratch& s, const std::string& rule) {
  return std::ranges::count_if(events_of(s), [&](const base::Json& event) {
    return event.at("kind") == "alert" && event.at("data").at("rule") == rule;
  });
}

void expect_outcome(const Scratch& s, const std::string& kind, const std::string& reason) {
  const base::Json diagnosis = trireme_json(s, {"diagnose", "run"});
  EXPECT_EQ(diagnosis.at("outcome").at("kind"), kind) << diagnosis.at("sentence");
  EXPECT_EQ(diagnosis.at("outcome").at("severity"), "bad");
  const base::Json listed = trireme_json(s, {"runs", "run"}).at("runs").at(0);
  EXPECT_EQ(listed.at("sentence"), diagnosis.at("sentence"));
  EXPECT_EQ(listed.at("lamp"), "bad");
  const Outcome watch = trireme(s, {"watch", "run", "--once", "--columns", "1000"});
  EXPECT_TRUE(has(watch.out, diagnosis.at("sentence").get<std::string>())) << watch.out;
  std::string found;
  for (const base::Json& event : events_of(s)) {
    if (event.at("kind") == "end") found = event.at("data").at("reason");
  }
  EXPECT_EQ(found, reason);
}

TEST(Outcomes, a_run_that_diverges_comes_to_its_end_and_is_not_done) {
  const Scratch s;
  write_tiny(s);
  const Outcome outcome = trireme(s, train_words(16, diverges));
  EXPECT_EQ(outcome.exit_code, 93) << outcome.err;
  EXPECT_TRUE(has(outcome.err, "step: 16")) << "it is not stopped early: " << outcome.err;
  EXPECT_FALSE(has(outcome.out, "done")) << outcome.out;
  EXPECT_TRUE(has(outcome.out, "run: ended, step 16 of 16: diverged since step ")) << outcome.out;
  EXPECT_TRUE(has(outcome.err, "error: diverged since step ")) << outcome.err;
  EXPECT_EQ(alerts_of(s, "diverged"), 1);
  expect_outcome(s, "diverged", "diverged");
  // A resume with nothing to do does not make it well.
  const Outcome again = trireme(s, with(train_words(16, diverges), {"--resume", "auto"}));
  EXPECT_EQ(again.exit_code, 93) << again.err;
  expect_outcome(s, "diverged", "diverged");
}

TEST(Outcomes, a_launcher_does_not_start_a_diverged_run_again) {
  const Scratch s;
  write_tiny(s);
  Words words = train_words(12, with(diverges, {"--parallelism.data_parallel_shard_degree=2"}));
  words.front() = "launch";
  words.insert(words.begin() + 1, {"-n", "2", "--restarts", "2"});
  const Outcome outcome = trireme(s, words);
  EXPECT_EQ(outcome.exit_code, 93) << outcome.err;
  const auto starts = std::ranges::count_if(
      events_of(s), [](const base::Json& event) { return event.at("kind") == "start"; });
  EXPECT_EQ(starts, 1);
  expect_outcome(s, "diverged", "diverged");
}

// No file may grow beyond what the weights and the state need.
TEST(Outcomes, a_run_whose_files_find_no_room_has_failed) {
  const Scratch s;
  write_tiny(s);
  const Outcome outcome =
      trireme(s, train_words(6, {"--checkpoint.interval=2"}), {.max_file_bytes = 20'000});
  EXPECT_EQ(outcome.exit_code, 1) << outcome.err;
  EXPECT_TRUE(has(outcome.out, "run: failed, step 6 of 6: step 6 is the last one")) << outcome.out;
  expect_outcome(s, "unsaved", "failed");
  EXPECT_TRUE(std::ranges::any_of(
      events_of(s), [](const base::Json& event) { return event.at("kind") == "export_failed"; }));
}

}  // namespace
}  // namespace trireme::tests
