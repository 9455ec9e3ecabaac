// SPDX-License-Identifier: Apache-2.0
// A kernel that spins for ever in one of several ranks over NCCL, all on the first GPU: the
// launcher names the rank, whether steps are captured or not. TRIREME_SPINS cases of each kind, one
// unless it is set, and fifty with TRIREME_FULL=1; TRIREME_SPIN_SEED is the seed of the first. And
// ranks of a run that are lost are replaced.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "comm/nccl.h"
#include "tests/launch/spin/spin_rig.h"

namespace trireme::tests {
namespace {

// The bar is in the summary: how long a verdict takes depends on what else the GPU does.
constexpr double max_seconds = 30;

struct HangKind {
  int ranks;
  bool is_captured;
};

// An environment variable.
int number_of(const char* name, int otherwise) {
  const char* given = std::getenv(name);
  return given == nullptr ? otherwise : std::atoi(given);
}

bool is_full() { return std::getenv("TRIREME_FULL") != nullptr; }

// Skips, or fails, if there is no GPU for NCCL.
class LostGpuRankTest : public testing::Test {
 protected:
  void SetUp() override {
    static const std::string problem = comm::nccl_status();
    if (problem.empty()) return;
    if (std::getenv("TRIREME_GPU_REQUIRED") != nullptr) FAIL() << problem;
    GTEST_SKIP() << problem;
  }
};

class HangTest : public LostGpuRankTest, public testing::WithParamInterface<HangKind> {};

TEST_P(HangTest, the_rank_whose_kernel_spins_is_named) {
  const HangKind kind = GetParam();
  const int count = number_of("TRIREME_SPINS", is_full() ? 50 : 1);
  const int first_seed = number_of("TRIREME_SPIN_SEED", 1);
  std::vector<SpinResult> results;
  for (int i = 0; i < count; ++i) {
    const SpinResult result = spin_once({.ranks = kind.ranks,
                                         .is_nccl = true,
                                         .is_captured = kind.is_captured,
                                         .seed = static_cast<uint64_t>(first_seed + i)});
    fmt::print("{}\n", result.text);
    EXPECT_TRUE(result.is_named) << result.text;
    EXPECT_LT(result.seconds, max_seconds) << result.text;
    results.push_back(result);
  }
  print_summary(
      fmt::format("{} ranks, steps {}", kind.ranks, kind.is_captured ? "captured" : "not captured"),
      results);
}

TEST_F(LostGpuRankTest, a_rank_whose_kernel_spins_is_replaced_and_the_bits_stay) {
  // Long enough for the spin, also if steps are fast.
  expect_spin_is_survived(2, true, is_full() ? 1000 : 250);
  if (is_full()) expect_spin_is_survived(4, true, 400);
}

// TRIREME_KILLS: how many ranks are killed, of 2 and 4, without and with a spare; otherwise one of
// 2 without. TRIREME_STEPS: how long the run is; a spare is warm about 15 s after it was started.
TEST_F(LostGpuRankTest, killed_ranks_are_replaced_and_the_bits_stay) {
  const int kills = number_of("TRIREME_KILLS", 1), steps = number_of("TRIREME_STEPS", 100);
  const bool has_all = std::getenv("TRIREME_KILLS") != nullptr;
  for (const int ranks : {2, 4}) {
    for (const int spares : {0, 1}) {
      if (!has_all && (ranks != 2 || spares != 0)) continue;
      const Scratch scratch;
      std::vector<std::string> words = {"chaos", "--json", "--kinds=kill", "--seed=7"};
      words.insert(words.end(), {"-n", std::to_string(ranks)});
      words.push_back(fmt::format("--kills={}", kills));
      words.push_back(fmt::format("--spares={}", spares));
      const auto run = write_lost_rank_run(scratch, ranks, true, steps);
      words.insert(words.end(), run.begin(), run.end());
      const Outcome outcome = trireme(scratch, words, {.deadline_seconds = 60.0 + steps});
      const base::Json report = only_object(outcome.out);
      ASSERT_TRUE(report.contains("weights_equal")) << outcome.err;
      fmt::print("{} ranks, {} spares: to the next step {}, of which {}\n", ranks, spares,
                 report.at("next_step_seconds").at("kill").dump(),
                 report.at("recovery_seconds").dump());
      std::fflush(stdout);
      EXPECT_EQ(report.at("done"), kills) << report.dump(1);
      EXPECT_EQ(report.at("weights_equal"), true) << report.dump(1);
      EXPECT_EQ(report.at("names").at("right"), kills) << report.dump(1);
      EXPECT_EQ(report.at("lost_tokens"), 0) << report.dump(1);
      EXPECT_EQ(report.at("doubled_tokens"), 0) << report.dump(1);
      if (HasFailure()) return;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, HangTest,
                         testing::Values(HangKind{1, true}, HangKind{2, false}, HangKind{2, true},
                                         HangKind{4, false}, HangKind{4, true}),
                         [](const auto& kind) {
                           return fmt::format("{}_ranks_{}", kind.param.ranks,
                                              kind.param.is_captured ? "captured" : "by_kernel");
                         });

}  // namespace
}  // namespace trireme::tests
