// SPDX-License-Identifier: Apache-2.0
// Runs that end and go on: from checkpoints, on other layouts, after kills at any moment, with
// damaged checkpoints and a full disk. What counts is that the weights are those of a run that was
// never interrupted, to the byte.
#include <gtest/gtest.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <map>
#include <random>
#include <set>

#include "tests/cli/program.h"

namespace trireme::tests {
namespace {

using Words = std::vector<std::string>;

const std::string final_weights = "run/weights/final/model.safetensors";

Words train_words(int steps, const Words& more) {
  Words words = {"train",
                 "tiny_run.toml",
                 "--training.steps=" + std::to_string(steps),
                 "--training.local_batch_size=1",
                 "--training.global_batch_size=24",
                 "--parallelism.logical_dp=24",
                 "--metrics.log_freq=10",
                 "--validation.enable=false"};
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

std::string weights_of(const Scratch& s, int steps, const Words& more) {
  const Outcome outcome = trireme(s, train_words(steps, more));
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  return s.has(final_weights) ? s.read(final_weights) : "";
}

const std::string& straight(int steps) {
  static std::map<int, std::string> known;
  const auto [found, is_new] = known.try_emplace(steps);
  if (is_new) {
    const Scratch s;
    write_tiny(s);
    found->second = weights_of(s, steps, {});
  }
  return found->second;
}

const std::string dp = "--parallelism.data_parallel_replicate_degree=";
const std::string zero = "--parallelism.data_parallel_shard_degree=";
const std::string stage = "--parallelism.zero_stage=";
const std::string pp = "--parallelism.pipeline_parallel_degree=";
const std::string schedule = "--parallelism.pipeline_parallel_schedule=";
const std::vector<Words> layouts = {
    {},
    {dp + "2"},
    {dp + "3"},
    {zero + "4", stage + "1"},
    {zero + "6", stage + "2"},
    {zero + "2", stage + "3"},
    {dp + "2", zero + "2", stage + "3"},
    {pp + "2"},
    {pp + "3", dp + "2"},
    {pp + "2", schedule + "interleaved", zero + "2", stage + "1"},
};

TEST(Resume, goes_on_to_the_bit_on_any_layout) {
  const Scratch s;
  write_tiny(s);
  Words first = {"--checkpoint.interval=3", "--checkpoint.keep_latest_k=0"};
  EXPECT_TRUE(weights_of(s, 12, first) == straight(12));
  Words save = {"--checkpoint.interval=5", "--checkpoint.keep_latest_k=0"};
  for (const Words& layout : layouts) {
    std::filesystem::remove(s.at(final_weights));
    Words words = layout;
    words.insert(words.end(), save.begin(), save.end());
    words.insert(words.end(), {"--resume", "6"});
    EXPECT_TRUE(weights_of(s, 12, words) == straight(12)) << (layout.empty() ? "" : layout[0]);
    // Its own checkpoint of step 10, on one rank.
    std::filesystem::remove(s.at(final_weights));
    EXPECT_TRUE(weights_of(s, 12, {"--resume", "10"}) == straight(12))
        << (layout.empty() ? "" : layout[0]);
  }
}

// Killed at any moment, also while a checkpoint is written; every time on another layout.
TEST(Resume, histories_with_kills_end_as_if_nothing_had_been) {
  constexpr int steps = 60;
  const int histories = std::getenv("TRIREME_FULL") != nullptr ? 20 : 3;
  std::mt19937 random(7);  // NOLINT(cert-msc51-cpp): the same histories every time
  for (int history = 0; history < histories; ++history) {
    const Scratch s;
    write_tiny(s);
    int kills = 0;
    for (bool is_done = false; !is_done;) {
      Words words = layouts[random() % layouts.size()];
      words.insert(words.end(), {"--resume", "auto", "--checkpoint.interval=2"});
      Running run(s.path(), trireme_command(train_words(steps, words)));
      const bool is_killed = kills < 6;
      if (is_killed) {
        const auto saved = [&s] {  // names of generations, of drafts too
          std::error_code ignored;
          std::set<std::string> names;
          for (std::filesystem::directory_iterator at(s.at("run/checkpoint"), ignored), end;
               at != end; at.increment(ignored)) {
            names.insert(at->path().filename().string());
          }
          return names;
        };
        // From the first file of its own on, some milliseconds more.
        const std::set<std::string> before = saved();
        (void)run.wait_for([&] { return saved() != before; });
        const auto end =
            std::chrono::steady_clock::now() + std::chrono::milliseconds(random() % 40);
        (void)run.wait_for([&] { return std::chrono::steady_clock::now() >= end; });
        run.signal(SIGKILL);
        ++kills;
      }
      const Outcome outcome = run.wait();
      is_done = outcome.exit_code == 0;
      if (!is_killed) {
        ASSERT_TRUE(is_done) << outcome.err;
      }
    }
    EXPECT_TRUE(s.read(final_weights) == straight(steps)) << "history " << history;
  }
}

TEST(Resume, steps_are_run_again_and_compared) {
  const Scratch s;
  write_tiny(s);
  (void)weights_of(s, 8, {"--checkpoint.interval=2", "--checkpoint.keep_latest_k=0"});
  for (const Words& layout : {Words{}, Words{zero + "2", stage + "3"}, Words{pp + "2"}}) {
    std::filesystem::remove(s.at(final_weights));
    Words words = layout;
    words.insert(words.end(), {"--resume", "6", "--resume-verify", "--checkpoint.interval=2",
                               "--checkpoint.keep_latest_k=0"});
    const Outcome outcome = trireme(s, train_words(8, words));
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
    EXPECT_NE(outcome.err.find("replayed: the bits of step 6"), std::string::npos) << outcome.err;
    EXPECT_TRUE(s.read(final_weights) == straight(8));
  }
  // Another learning rate gives other bits.
  const Outcome other = trireme(s, train_words(8, {"--resume-verify", "--optimizer.lr=2e-2"}));
  EXPECT_NE(other.exit_code, 0);
  EXPECT_NE(other.err.find("gave other bits than"), std::string::npos) << other.err;
  const Outcome first = trireme(s, train_words(8, {"--resume", "2", "--resume-verify"}));
  EXPECT_NE(first.err.find("there is no checkpoint before step 2"), std::string::npos) << first.err;
}

TEST(Resume, a_damaged_checkpoint_is_named_and_the_one_before_used) {
  const Scratch s;
  write_tiny(s);
  (void)weights_of(s, 12, {"--checkpoint.interval=4", "--checkpoint.keep_latest_k=0"});
  std::string data = s.read("run/checkpoint/step-00000012/data-00000");
  data[data.size() / 2] = static_cast<char>(data[data.size() / 2] ^ 4);
  s.write("run/checkpoint/step-00000012/data-00000", data);
  s.write("run/checkpoint/step-00000008/manifest", "trireme checkpoint 9\n{}\n");
  const Outcome outcome =
      trireme(s, train_words(12, {"--resume", "auto", "--checkpoint.interval=4"}));
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_NE(outcome.err.find("checkpoint of step 12 skipped"), std::string::npos) << outcome.err;
  EXPECT_NE(outcome.err.find("checkpoint of step 8 skipped"), std::string::npos) << outcome.err;
  EXPECT_NE(outcome.err.find("resume    step 4"), std::string::npos) << outcome.err;
  EXPECT_TRUE(s.read(final_weights) == straight(12));
  EXPECT_TRUE(s.has("run/checkpoint/step-00000012.aside-0"));  // nothing is lost
}

// A new run in an old run's folder: its checkpoints are its own, the old ones stay beside them.
TEST(Resume, a_run_that_starts_anew_does_not_go_on_from_another) {
  const Scratch s;
  write_tiny(s);
  (void)weights_of(s, 14, {"--checkpoint.interval=7", "--debug.seed=9"});
  (void)weights_of(s, 12, {"--checkpoint.interval=7", "--overwrite"});
  for (const char* name :
       {"step-00000007", "step-00000012", "step-00000007.aside-0", "step-00000014.aside-0"}) {
    EXPECT_TRUE(s.has(std::string("run/checkpoint/") + name)) << name;
  }
  EXPECT_FALSE(s.has("run/checkpoint/step-00000014"));
  EXPECT_TRUE(weights_of(s, 12, {"--resume", "7"}) == straight(12));
}

// Sums in another order: the run goes on, and says that it is not to the bit.
TEST(Resume, another_numerical_identity_is_said) {
  const Scratch s;
  write_tiny(s);
  (void)weights_of(s, 2, {"--checkpoint.interval=2"});
  const Outcome outcome =
      trireme(s, train_words(4, {"--resume", "auto", "--parallelism.logical_dp=12"}));
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_NE(outcome.err.find("not to the bit: logical_dp was 24, is 12"), std::string::npos)
      << outcome.err;
}

TEST(Resume, what_cannot_be_is_refused) {
  const Scratch s;
  write_tiny(s);
  (void)weights_of(s, 4, {"--checkpoint.interval=2"});
  const Tree before = s.tree("run/checkpoint");
  const auto expect = [&](const Words& more, const std::string& part) {
    const Outcome outcome = trireme(s, train_words(6, more));
    EXPECT_NE(outcome.exit_code, 0);
    EXPECT_NE(outcome.err.find(part), std::string::npos) << outcome.err;
  };
  expect({"--resume", "soon"}, "--resume soon: must be auto, never, or the step of a checkpoint");
  expect({"--resume", "3"}, "there is no checkpoint of step 3");
  expect({"--resume", "auto", "--training.global_batch_size=48"}, "samples_a_step: was 24, is 48");
  expect({"--resume", "auto", "--debug.seed=5"}, "seed: was");
  expect({"--resume", "2", "--debug.seed=5", "--checkpoint.interval=2"}, "seed: was");
  expect({}, "run");  // the folder holds a run
  EXPECT_EQ(s.tree("run/checkpoint"), before);
}

// No file may grow: saving fails and says so every time, training goes on.
TEST(Resume, a_full_disk_stops_saving_and_not_training) {
  const Scratch s;
  write_tiny(s);
  const Outcome outcome =
      trireme(s, train_words(6, {"--checkpoint.interval=2", "--checkpoint.export_dtype=bf16"}),
              {.most_file_bytes = 60'000});
  size_t said = 0;
  for (size_t at = outcome.err.find("not saved"); at != std::string::npos;
       at = outcome.err.find("not saved", at + 1)) {
    ++said;
  }
  EXPECT_EQ(said, 3U) << outcome.err;
  EXPECT_NE(outcome.err.find("step:  6"), std::string::npos) << outcome.err;
  for (const auto& [name, bytes] : s.tree("run/checkpoint")) ADD_FAILURE() << name;
}

}  // namespace
}  // namespace trireme::tests
