// SPDX-License-Identifier: Apache-2.0
#include "ckpt/memory/copy_round.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <utility>
#include <vector>

namespace trireme::ckpt {
namespace {

// Ranks seal at random times, and some copies fail.
TEST(CopyRuleTest, one_complete_step_always_exists) {
  constexpr size_t ranks = 3;
  for (uint32_t seed = 1; seed <= 300; ++seed) {
    std::mt19937 random(seed);
    const int buffers = 2 + static_cast<int>(seed % 2);
    const bool may_fail = seed % 5 == 0;
    std::vector<CopySteps> all(ranks);
    int64_t copied = 0, newest = CopySteps::empty;
    for (int64_t step = 1; step <= 60; ++step) {
      const CopyRound round = round_of(all);
      EXPECT_GE(round.held.value_or(CopySteps::empty), newest) << "seed " << seed << " " << step;
      newest = round.held.value_or(CopySteps::empty);
      if (may_copy(all, buffers)) {
        ++copied;
        for (CopySteps& own : all) {
          const auto buffer = static_cast<size_t>(free_buffer(own, buffers, round).value());
          EXPECT_TRUE(!round.held || own.sealed[buffer] != *round.held);
          own.sealed[buffer] = CopySteps::empty;
          own.filling[buffer] = step;
        }
      }
      for (CopySteps& own : all) {
        for (size_t buffer = 0; buffer < static_cast<size_t>(buffers); ++buffer) {
          if (own.filling[buffer] == CopySteps::empty || random() % 3 == 0) continue;
          const int64_t filled = std::exchange(own.filling[buffer], CopySteps::empty);
          if (!may_fail || random() % 10 != 0) own.sealed[buffer] = filled;
        }
      }
    }
    EXPECT_GT(copied, 10) << "seed " << seed;
    EXPECT_GT(newest, 40) << "seed " << seed;
  }
}

TEST(CopyRuleTest, a_rank_that_is_slow_makes_all_ranks_skip) {
  std::vector<CopySteps> all(2);
  EXPECT_TRUE(may_copy(all, 2));
  all[0].sealed = {4, 6, CopySteps::empty};
  all[1].sealed = {4, CopySteps::empty, CopySteps::empty};
  all[1].filling[1] = 6;
  EXPECT_EQ(round_of(all).held, 4);
  EXPECT_FALSE(may_copy(all, 2));  // rank 0 must keep step 4, and 6 may become the next one
  EXPECT_TRUE(may_copy(all, 3));
  all[1].sealed[1] = 6;
  all[1].filling[1] = CopySteps::empty;
  EXPECT_EQ(round_of(all).held, 6);
  EXPECT_TRUE(may_copy(all, 2));
  EXPECT_EQ(free_buffer(all[0], 2, round_of(all)), 0);
}

TEST(CopyRuleTest, a_step_that_a_rank_could_not_seal_is_given_up) {
  std::vector<CopySteps> all(2);
  all[0].sealed = {4, 6, CopySteps::empty};
  all[1].sealed = {4, CopySteps::empty, CopySteps::empty};  // of step 6: it failed
  EXPECT_TRUE(may_copy(all, 2));
  EXPECT_EQ(free_buffer(all[0], 2, round_of(all)), 1);
}

// Sends take random times; a node is two ranks, whose copies are kept by the other node.
TEST(CopyRuleTest, ranks_that_lose_a_node_have_a_step_in_common) {
  constexpr size_t ranks = 4;
  for (uint32_t seed = 1; seed <= 300; ++seed) {
    std::mt19937 random(seed);
    const int buffers = 2 + static_cast<int>(seed % 2);
    const bool may_fail = seed % 3 == 0;
    std::vector<CopySteps> all(ranks);
    std::vector<CopySteps::Steps> kept(ranks, CopySteps{}.kept);  // where they are kept
    int64_t common = CopySteps::empty, kept_by_all = CopySteps::empty;
    const auto find = [](const CopySteps::Steps& steps, int64_t step) {
      return std::ranges::find(steps, step) != steps.end();
    };
    for (int64_t step = 1; step <= 60; ++step) {
      const CopyRound round = round_of(all);
      EXPECT_GE(round.kept.value_or(CopySteps::empty), kept_by_all) << "seed " << seed;
      kept_by_all = round.kept.value_or(CopySteps::empty);
      if (may_copy(all, buffers)) {
        for (CopySteps& own : all) {
          const auto buffer = static_cast<size_t>(free_buffer(own, buffers, round).value());
          own.sealed[buffer] = CopySteps::empty;
          own.filling[buffer] = own.sending = step;
        }
      }
      for (size_t rank = 0; rank < ranks; ++rank) {
        CopySteps& own = all[rank];
        for (size_t buffer = 0; buffer < static_cast<size_t>(buffers); ++buffer) {
          if (own.filling[buffer] == CopySteps::empty || random() % 3 == 0) continue;
          own.sealed[buffer] = std::exchange(own.filling[buffer], CopySteps::empty);
        }
        if (!find(own.sealed, own.sending) || own.sending == CopySteps::empty) continue;
        if (random() % 3 == 0) continue;
        const int64_t sent = std::exchange(own.sending, CopySteps::empty);
        const auto buffer =
            static_cast<size_t>(buffer_to_keep_in(kept[rank], buffers, kept_by_all));
        kept[rank][buffer] = CopySteps::empty;
        if (!may_fail || random() % 10 != 0) kept[rank][buffer] = sent;
        own.kept = kept[rank];
      }
      // Both nodes may be lost, one at a time.
      int64_t newest = CopySteps::empty;
      for (int64_t at = 1; at <= step; ++at) {
        const bool is_common = std::ranges::all_of(
            all, [&](const CopySteps& own) { return find(own.sealed, at) && find(own.kept, at); });
        if (is_common) newest = at;
      }
      if (!may_fail) {
        EXPECT_GE(newest, common) << "seed " << seed << " step " << step;
      }
      common = newest;
    }
    EXPECT_GT(kept_by_all, 20) << "seed " << seed;
  }
}

}  // namespace
}  // namespace trireme::ckpt
