// SPDX-License-Identifier: Apache-2.0
// Runs that end at any moment and go on, each time on another layout: in the end there is what a
// run leaves that was never interrupted, and every step worked on its own samples.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <map>
#include <random>
#include <set>
#include <sstream>

#include "tests/cli/resume_rig.h"

namespace trireme::tests {
namespace {

// Weights, both moments and the state besides, of the newest checkpoints of two runs.
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

// Norms of the gradients of every step, as it was logged by all runs that had it. (The loss is no
// measure: it is summed for the log by rank.)
std::map<int64_t, std::set<std::string>> logged_steps(const Scratch& s) {
  std::map<int64_t, std::set<std::string>> steps;
  std::istringstream lines(s.read("run/metrics.jsonl"));
  for (std::string line; std::getline(lines, line);) {
    const base::Json json = base::Json::parse(line);
    const auto norm = json.find("grad_norm");
    if (norm == json.end()) continue;  // of a save
    steps[json.at("step").get<int64_t>()].insert(norm->dump());
  }
  return steps;
}

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
    EXPECT_TRUE(weights_of(s, 12, {"--resume", "10", "--checkpoint.keep_latest_k=0"}) ==
                straight(12))
        << (layout.empty() ? "" : layout[0]);
  }
}

// Killed at any moment, also while a checkpoint is written; every time on another layout. At a step
// that is logged, the run ends with an error unless all ranks together worked on the samples of
// that step, each once; here every step is. One that was run again after a kill did the same again.
TEST(Resume, histories_with_kills_end_as_if_nothing_had_been) {
  constexpr int steps = 60;
  const int histories = std::getenv("TRIREME_FULL") != nullptr ? 20 : 3;
  std::mt19937 random(7);  // NOLINT(cert-msc51-cpp): the same histories every time
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
    EXPECT_TRUE(s.read(final_weights) == straight(steps));
    expect_same_checkpoint(s, straight_run(steps).scratch, steps);
    const auto logged = logged_steps(s);
    EXPECT_EQ(logged, logged_steps(straight_run(steps).scratch));
    EXPECT_EQ(logged.size(), size_t{steps});
  }
}

}  // namespace
}  // namespace trireme::tests
