// SPDX-License-Identifier: Apache-2.0
// Health marks from the command line: given by the run, by hand and by a divergence; which
// checkpoint a resume takes; and a launcher that goes back once.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <csignal>
#include <sstream>

#include "tests/cli/resume/resume_rig.h"

namespace trireme::tests {
namespace {

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

// Step by step: "" without a mark.
std::map<int64_t, std::string> marks_of(const Scratch& s) {
  std::map<int64_t, std::string> marks;
  const base::Json list = trireme_json(s, {"ckpt", "list", "run"});
  for (const base::Json& one : list.at("checkpoints")) {
    const base::Json& mark = one.at("mark");
    marks[one.at("step")] = mark.is_null() ? "" : mark.get<std::string>();
  }
  return marks;
}

std::vector<base::Json> events_in(const Scratch& s, const std::string& kind) {
  std::vector<base::Json> events;
  std::istringstream lines(s.read("run/events.jsonl"));
  for (std::string line; std::getline(lines, line);) {
    const base::Json event = base::Json::parse(line);
    if (event.at("kind") == kind) events.push_back(event);
  }
  return events;
}

std::vector<int64_t> starts_of(const Scratch& s) {
  std::vector<int64_t> steps;
  for (const base::Json& event : events_in(s, "start")) steps.push_back(event.at("step"));
  return steps;
}

const Words saves = {"--checkpoint.interval=10", "--checkpoint.keep_latest_k=0",
                     "--checkpoint.good_after_steps=20"};

Words saving(int steps, const Words& more) {
  Words words = saves;
  words.insert(words.end(), more.begin(), more.end());
  return train_words(steps, words);
}

TEST(Marks, a_checkpoint_becomes_good_and_a_resume_takes_it) {
  const Scratch s;
  write_tiny(s);
  ASSERT_EQ(trireme(s, saving(40, {})).exit_code, 0);
  using Expected = std::map<int64_t, std::string>;
  EXPECT_EQ(marks_of(s), (Expected{{10, "good"}, {20, "good"}, {30, ""}, {40, ""}}));
  const Outcome good = trireme(s, saving(50, {"--resume", "good"}));
  EXPECT_EQ(good.exit_code, 0) << good.err;
  EXPECT_TRUE(contains(good.err, "resume    from the checkpoint of step 20: step 40 is not marked"))
      << good.err;
  EXPECT_TRUE(contains(good.err, "resume    step 20 of ")) << good.err;
  // Steps 30 and 40 are other checkpoints now, of the second epoch.
  EXPECT_EQ(marks_of(s), (Expected{{10, "good"}, {20, "good"}, {30, "good"}, {40, ""}, {50, ""}}));
}

TEST(Marks, a_bad_mark_by_hand_covers_what_follows_until_the_run_goes_back) {
  const Scratch s;
  write_tiny(s);
  ASSERT_EQ(trireme(s, saving(40, {})).exit_code, 0);
  const base::Json marked =
      trireme_json(s, {"ckpt", "mark", "run", "20", "bad", "--why", "its evaluation is off"});
  EXPECT_EQ(marked.at("covers"), (base::Json{40, 30, 20}));
  using Expected = std::map<int64_t, std::string>;
  EXPECT_EQ(marks_of(s), (Expected{{10, "good"}, {20, "bad"}, {30, "bad"}, {40, "bad"}}));
  const Outcome list = trireme(s, {"ckpt", "list", "run"});
  EXPECT_TRUE(contains(list.out, "bad (hand): its evaluation is off")) << list.out;
  const Outcome resumed = trireme(s, saving(40, {"--resume", "auto"}));
  EXPECT_EQ(resumed.exit_code, 0) << resumed.err;
  EXPECT_TRUE(contains(resumed.err,
                       "resume    from the checkpoint of step 10: step 40 is bad (hand: its "
                       "evaluation is off)"))
      << resumed.err;
  EXPECT_EQ(marks_of(s), (Expected{{10, "good"}, {20, "good"}, {30, ""}, {40, ""}}));
  EXPECT_TRUE(s.has("run/checkpoint/step-00000020.aside-0"));
}

TEST(Marks, what_cannot_be_resumed_is_refused_and_changes_nothing) {
  const Scratch s;
  write_tiny(s);
  ASSERT_EQ(trireme(s, saving(20, {"--checkpoint.good_after_steps=100"})).exit_code, 0);
  const auto expect_refused = [&](const Words& words, int exit_code, const std::string& part) {
    const Tree before = s.tree("run");
    const Outcome outcome = trireme(s, words);
    EXPECT_EQ(outcome.exit_code, exit_code) << outcome.err;
    EXPECT_TRUE(contains(outcome.err, part)) << outcome.err;
    EXPECT_TRUE(s.tree("run") == before) << part;
  };
  expect_refused(saving(30, {"--resume", "good"}), 2,
                 "has no checkpoint that is marked good: step 20 is not marked; step 10 is not");
  expect_refused({"ckpt", "mark", "run", "15", "bad", "--why", "x"}, 1,
                 "there is no checkpoint of step 15; there are those of 20, 10");
  expect_refused({"ckpt", "mark", "run", "10", "fine", "--why", "x"}, 2, "good,suspect,bad");
  expect_refused({"ckpt", "mark", "run", "10", "bad"}, 2, "--why");
  expect_refused({"ckpt", "mark", "run", "10", "bad", "--why", ""}, 2, "--why is empty");
  ASSERT_EQ(trireme(s, {"ckpt", "mark", "run", "10", "bad", "--why", "poison"}).exit_code, 0);
  expect_refused(saving(30, {"--resume", "auto"}), 93,
                 "is marked bad: step 20 is bad (hand: poison); step 10 is bad (hand: poison)");
  const std::string marks = s.read("run/checkpoint/marks.jsonl");
  s.write("run/checkpoint/marks.jsonl", "{}\n" + marks);
  expect_refused(saving(30, {"--resume", "auto"}), 1, "marks.jsonl:1: ");
  // What a killed process left, and a person who knows better.
  s.write("run/checkpoint/marks.jsonl", marks + R"({"step":10,"ep)");
  const Outcome by_step = trireme(s, saving(30, {"--resume", "10"}));
  EXPECT_EQ(by_step.exit_code, 0) << by_step.err;
  EXPECT_TRUE(contains(by_step.err, "the checkpoint that was requested is marked bad"))
      << by_step.err;
}

// ---- divergence

// The learning rate is absurd from step 31 on.
const char* const absurd_phase =
    "[[phase]]\n"
    "from_step = 31\n"
    "lr = 1000\n";

void write_diverging(const Scratch& s, const std::string& more = "") {
  write_tiny(s);
  s.write("tiny_run.toml", std::string(tiny_config) + more + absurd_phase);
}

// The learning rate of the phase is that of the run.
void mend(const Scratch& s) {
  s.write("tiny_run.toml", replaced(s.read("tiny_run.toml"), "lr = 1000", "lr = 0.01"));
}

Words diverging(int steps, const Words& more) {
  Words words = {"--training.clip=none", "--training.skip_norm_multiple=0",
                 "--checkpoint.good_after_steps=10"};
  words.insert(words.end(), more.begin(), more.end());
  return saving(steps, words);
}

Words launched(Words words, const Words& options = {}) {
  words.front() = "launch";
  words.insert(words.begin() + 1, options.begin(), options.end());
  return words;
}

TEST(Marks, a_divergence_marks_what_follows_its_onset) {
  const Scratch s;
  write_diverging(s);
  const Outcome outcome = trireme(s, diverging(60, {}));
  EXPECT_EQ(outcome.exit_code, 93) << outcome.err;
  EXPECT_TRUE(contains(outcome.err, "left its range at step 32")) << outcome.err;
  EXPECT_EQ(events_in(s, "end").back().at("data").at("onset"), 32);
  using Expected = std::map<int64_t, std::string>;
  EXPECT_EQ(
      marks_of(s),
      (Expected{
          {10, "good"}, {20, "good"}, {30, "suspect"}, {40, "bad"}, {50, "bad"}, {60, "bad"}}));
  // The advice that readers of the folder give, and what auto means now.
  EXPECT_TRUE(contains(trireme(s, {"diagnose", "run"}).out, "--resume auto"));
  mend(s);
  const Outcome resumed = trireme(s, diverging(60, {"--resume", "auto"}));
  EXPECT_EQ(resumed.exit_code, 0) << resumed.err;
  EXPECT_TRUE(contains(resumed.err,
                       "the last attempt diverged: from the newest good checkpoint, of step 20"))
      << resumed.err;
}

TEST(Marks, without_a_good_one_the_newest_before_the_onset_is_taken) {
  const Scratch s;
  write_diverging(s);
  Words words = diverging(60, {"--checkpoint.good_after_steps=100"});
  EXPECT_EQ(trireme(s, words).exit_code, 93);
  mend(s);
  words.insert(words.end(), {"--resume", "auto"});
  const Outcome resumed = trireme(s, words);
  EXPECT_EQ(resumed.exit_code, 0) << resumed.err;
  EXPECT_TRUE(contains(resumed.err,
                       "no checkpoint is marked good: from the newest before the "
                       "divergence, of step 30"))
      << resumed.err;
}

TEST(Marks, a_launcher_goes_back_once_and_gives_up_if_the_run_diverges_again) {
  for (const Words& ranks : {Words{"-n", "1"}, Words{"-n", "2", "--restarts", "3"}}) {
    const Scratch s;
    write_diverging(s);
    const Words split = {"--parallelism.data_parallel_replicate_degree=" + ranks[1], "--json"};
    const Outcome outcome = trireme(s, launched(diverging(60, split), ranks));
    EXPECT_EQ(outcome.exit_code, 93) << outcome.err;
    EXPECT_EQ(starts_of(s), (std::vector<int64_t>{0, 20})) << outcome.err;
    EXPECT_TRUE(contains(outcome.err, "goes back to the checkpoint of step 20")) << outcome.err;
    const base::Json result = only_object(outcome.out);
    EXPECT_EQ(result.at("went_back_to"), 20);
    EXPECT_TRUE(contains(result.at("reason"), "diverged again after it had gone back to step 20"));
  }
}

// What made the run diverge is gone when it is started again: here the command of the alert mends
// the configuration, which ranks read at their start.
TEST(Marks, a_launcher_brings_a_run_that_diverged_to_its_end) {
  const Scratch s;
  write_diverging(s,
                  "[alerts]\ncommand = \"sed -i s/1000/0.01/ ../tiny_run.toml tiny_run.toml\"\n");
  const Words two = {"--parallelism.data_parallel_replicate_degree=2", "--json"};
  const Outcome outcome = trireme(s, launched(diverging(60, two), {"-n", "2"}));
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_EQ(starts_of(s), (std::vector<int64_t>{0, 20})) << outcome.err;
  EXPECT_EQ(only_object(outcome.out).at("went_back_to"), 20);
  const base::Json diagnosis = trireme_json(s, {"diagnose", "run"});
  EXPECT_NE(diagnosis.at("outcome").at("severity"), "bad") << diagnosis.at("outcome");
}

TEST(Marks, a_launcher_without_rewind_ends) {
  const Scratch s;
  write_diverging(s);
  const Outcome outcome = trireme(s, launched(diverging(60, {}), {"--no-rewind"}));
  EXPECT_EQ(outcome.exit_code, 93) << outcome.err;
  EXPECT_EQ(starts_of(s), (std::vector<int64_t>{0}));
}

}  // namespace
}  // namespace trireme::tests
