// SPDX-License-Identifier: Apache-2.0
// Whatever happens to the processes of a run, and in whatever layout, it ends with the weights,
// moments and step state of a run to which nothing happened, and with the losses of its steps.
// TRIREME_FULL=1 plays all histories, TRIREME_HISTORIES=N,SEED N of them from a seed on.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <map>
#include <memory>
#include <set>
#include <sstream>

#include "base/text/json.h"
#include "comm/gloo.h"
#include "obs/files/event_log.h"
#include "tests/histories/player.h"

namespace trireme::tests {
namespace {

// The losses of a step, however often it was computed, and the tokens after the last one.
struct Steps {
  std::map<int64_t, std::set<double>> losses;
  double tokens = 0;
};

Steps steps_of(const std::string& metrics) {
  Steps steps;
  std::istringstream lines(metrics);
  for (std::string line; std::getline(lines, line);) {
    const base::Json json = base::Json::parse(line, nullptr, false);
    if (!json.is_object() || !json.contains("loss_metrics/global_avg_loss")) continue;
    const base::Json& loss = json.at("loss_metrics/global_avg_loss");
    // Values that are not finite are strings.
    steps.losses[json.at("step")].insert(loss.is_number() ? loss.get<double>() : -1);
    steps.tokens = json.at("tokens");
  }
  return steps;
}

class Histories : public testing::Test {
 protected:
  void SetUp() override {
    if (!comm::gloo_status().empty()) GTEST_SKIP() << comm::gloo_status();
  }

  // The folder of a run of this configuration to which nothing happened, on ranks as threads; null
  // if the configuration is refused.
  const Scratch* quiet(const History& history) {
    static std::map<std::string, std::unique_ptr<Scratch>> known;
    const auto [found, is_new] = known.try_emplace(history.config);
    if (!is_new) return found->second.get();
    auto folder = std::make_unique<Scratch>();
    write_files(history, folder->path().string());
    const Outcome outcome = trireme(*folder, {"train", "history.toml"});
    if (outcome.exit_code == exit_bad_call) {
      ++refused_;
      if (is_verbose()) std::cout << history.seed << " is refused: " << outcome.err << std::endl;
      return nullptr;
    }
    EXPECT_EQ(outcome.exit_code, exit_done) << history.config << outcome.err;
    found->second = std::move(folder);
    return found->second.get();
  }

  // The alarm about 8-bit numbers lacks the sample of a step that ended when the epoch did.
  static bool is_same(const base::Json& diff) {
    if (!diff.is_object() || !diff.at("tensors").empty()) return false;
    return std::ranges::all_of(
        diff.at("state"), [](const base::Json& one) { return one.at("key") == "numerics.alarm"; });
  }

  // Returns what differs from the quiet run.
  static std::string difference(const Scratch& quiet, const Scratch& folder,
                                const History& history) {
    const int64_t steps = history.steps;
    const std::string name = fmt::format("checkpoint/step-{:08}", steps);
    if (!folder.has("run/" + name)) return "the last step was not saved";
    const Outcome diff = trireme(folder, {"ckpt", "diff", (quiet.at("run") / name).string(),
                                          (folder.at("run") / name).string(), "--json"});
    if (!is_same(base::Json::parse(diff.out, nullptr, false))) {
      return "ckpt diff: " + diff.out + diff.err;
    }
    const Steps expected = steps_of(quiet.read("run/metrics.jsonl"));
    const Steps found = steps_of(folder.read("run/metrics.jsonl"));
    for (const auto& [step, losses] : expected.losses) {
      const auto same = found.losses.find(step);
      if (same == found.losses.end()) return fmt::format("step {} has no line", step);
      if (same->second != losses) return fmt::format("step {} has another loss", step);
    }
    if (found.losses.size() > expected.losses.size()) return "there are more steps";
    if (found.tokens != expected.tokens) return "tokens were lost or doubled";
    for (const obs::Event& event : obs::read_events(folder.at("run"))) {
      if (event.kind == obs::EventKind::hardware) return event.text;
    }
    return "";
  }

  // Returns false if the configuration is refused.
  bool play(const History& history, const char* which) {
    const Scratch* expected = quiet(history);
    if (expected == nullptr) return false;
    const Scratch folder;
    write_files(history, folder.path().string());
    Player player(folder, history);
    std::string problem = player.play();
    if (problem.empty()) problem = difference(*expected, folder, history);
    done_ += player.done();
    if (is_verbose())
      std::cout << history.seed << " " << to_text(history) << " " << problem << std::endl;
    if (problem.empty()) return true;
    ADD_FAILURE() << problem << "\nTRIREME_HISTORIES=1," << history.seed << " with Histories."
                  << which << "\n"
                  << to_text(history) << "\n"
                  << history.config << player.log();
    return true;
  }

  void play_all(LayoutKind kind, int sample, int all, const char* which) {
    uint64_t seed = 1;
    int count = std::getenv("TRIREME_FULL") != nullptr ? all : sample;
    if (const char* chosen = std::getenv("TRIREME_HISTORIES")) {
      char* rest = nullptr;
      count = static_cast<int>(std::strtol(chosen, &rest, 10));
      ASSERT_EQ(*rest, ',') << "TRIREME_HISTORIES=" << chosen << ": it is N,SEED";
      seed = std::strtoull(rest + 1, nullptr, 10);
    }
    for (int played = 0; played < count; ++seed) {
      ASSERT_LT(refused_, 20 + 2 * count) << "most configurations are refused";
      if (play(history_of(seed, kind), which)) ++played;
    }
    std::cout << fmt::format("{} histories, {} happenings, {} configurations were refused\n", count,
                             done_, refused_);
    EXPECT_GE(done_, count / 2) << "runs ended before anything happened";
  }

 private:
  static bool is_verbose() { return std::getenv("TRIREME_HISTORIES") != nullptr; }
  int done_ = 0, refused_ = 0;
};

TEST_F(Histories, of_layouts_with_the_bits_of_one_rank_end_like_quiet_runs) {
  play_all(LayoutKind::exact, 2, 200, "of_layouts_with_the_bits_of_one_rank_end_like_quiet_runs");
}

TEST_F(Histories, of_tensor_and_context_parallel_ranks_end_like_quiet_runs) {
  play_all(LayoutKind::near, 1, 50, "of_tensor_and_context_parallel_ranks_end_like_quiet_runs");
}

}  // namespace
}  // namespace trireme::tests
