// SPDX-License-Identifier: Apache-2.0
// Runs that end at any moment and are resumed, each time on another layout: they end with the state
// of an uninterrupted run, and every step consumes its samples exactly once.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <map>
#include <random>
#include <set>
#include <sstream>

#include "tests/cli/resume/resume_rig.h"

namespace trireme::tests {
namespace {

// Compares weights, moments and state of the newest checkpoints of two runs.
void expect_same_checkpoint(const Scratch& s, const Scratch& other, int steps) {
  const base::Json found =
      trireme_json(s, {"ckpt", "diff", "run", (other.path() / "run").string()});
  EXPECT_TRUE(found.at("ok").get<bool>()) << found;
  const base::Json inspected = trireme_json(s, {"ckpt", "inspect", "run"});
  EXPECT_EQ(inspected.at("step"), steps);
  EXPECT_EQ(inspected.at("state").at("samples"), steps * 24);
  std::map<std::string, int> kinds;  // weight, m, v
  for (const base::Json& tensor : inspected.at("tensors")) {
    const auto name = tensor.at("name").get<std::string>();
    ++kinds[name.substr(0, name.find('/'))];
  }
  EXPECT_EQ(kinds.size(), 3U);
  EXPECT_EQ(kinds["m"], kinds["weight"]);
  EXPECT_EQ(kinds["v"], kinds["weight"]);
  EXPECT_EQ(found.at("compared"), 3 * kinds["weight"]);
}

bool has_checkpoint(const Scratch& s) {
  if (!s.has("run/checkpoint")) return false;
  using Names = std::filesystem::directory_iterator;
  return std::any_of(Names(s.at("run/checkpoint")), Names(), [](const auto& entry) {
    return entry.path().filename().string().find('.') == std::string::npos;
  });
}

// The gradient norms that all attempts logged, by step. (The loss cannot be compared: it is summed
// by rank.)
std::map<int64_t, std::set<std::string>> logged_steps(const Scratch& s) {
  std::map<int64_t, std::set<std::string>> steps;
  std::istringstream lines(s.read("run/metrics.jsonl"));
  for (std::string line; std::getline(lines, line);) {
    const base::Json json = base::Json::parse(line);
    const auto norm = json.find("grad_norm");
    if (norm == json.end()) continue;  // the line of a save
    steps[json.at("step").get<int64_t>()].insert(norm->dump());
  }
  return steps;
}

TEST(Resume, any_layout_continues_with_the_same_bits) {
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
    // A checkpoint of step 10 on one rank.
    std::filesystem::remove(s.at(final_weights));
    EXPECT_TRUE(weights_of(s, 12, {"--resume", "10", "--checkpoint.keep_latest_k=0"}) ==
                straight(12))
        << (layout.empty() ? "" : layout[0]);
  }
}

// Runs are killed at any moment, also while a checkpoint is written, and resumed on another layout.
// At every logged step, here at every step, the run itself fails unless the ranks together consumed
// each sample of the step exactly once. Steps that are run again after a kill must give the same
// norms.
TEST(Resume, killed_and_resumed_runs_end_like_an_uninterrupted_one) {
  constexpr int steps = 60;
  const int histories = std::getenv("TRIREME_FULL") != nullptr ? 20 : 3;
  std::mt19937 random(7);  // NOLINT(cert-msc51-cpp): a fixed seed
  std::vector<Words> deck;
  const auto next_layout = [&] {
    if (deck.empty()) {
      deck = layouts;
      std::shuffle(deck.begin(), deck.end(), random);
    }
    Words layout = std::move(deck.back());
    deck.pop_back();
    return layout;
  };
  for (int history = 0; history < histories; ++history) {
    SCOPED_TRACE("history " + std::to_string(history));
    const Scratch s;
    write_tiny(s);
    int kills = 0;
    for (bool is_done = false; !is_done;) {
      Words words = next_layout();
      words.insert(words.end(),
                   {"--resume", "auto", "--checkpoint.interval=2", "--metrics.log_freq=1"});
      if (!has_checkpoint(s)) words.insert(words.end(), start_keys.begin(), start_keys.end());
      Running run(s.path(), trireme_command(train_words(steps, words)));
      const bool is_killed = kills < 6;
      if (is_killed) {
        const auto saved = [&s] {  // names of checkpoints, also of incomplete ones
          std::error_code ignored;
          std::set<std::string> names;
          for (std::filesystem::directory_iterator at(s.at("run/checkpoint"), ignored), end;
               at != end; at.increment(ignored)) {
            names.insert(at->path().filename().string());
          }
          return names;
        };
        // A few milliseconds after its first file.
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
    EXPECT_TRUE(s.read(final_weights) == straight(steps));
    expect_same_checkpoint(s, straight_run(steps).scratch, steps);
    const auto logged = logged_steps(s);
    EXPECT_EQ(logged, logged_steps(straight_run(steps).scratch));
    EXPECT_EQ(logged.size(), size_t{steps});
  }
}

}  // namespace
}  // namespace trireme::tests
