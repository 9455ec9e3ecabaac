// SPDX-License-Identifier: Apache-2.0
#include "plan/memory/stage_blocks.h"

#include <gtest/gtest.h>

#include <vector>

#include "plan/samples_test.h"
#include "spec/parallel/stage_cut.h"

namespace trireme::plan {
namespace {

TEST(StageBlocks, balanced_is_the_engines_cut_for_any_costs) {
  Dice dice(11);
  for (int turn = 0; turn < 4000; ++turn) {
    const auto blocks = static_cast<int64_t>(1 + dice.below(130));
    const auto stages = static_cast<int64_t>(1 + dice.below(static_cast<size_t>(blocks + 2)));
    CutCosts costs;
    // Integer costs make cuts of equal cost, others do not.
    const bool is_whole = dice.below(2) == 0;
    costs.block = is_whole ? static_cast<double>(1 + dice.below(4)) : dice.between(0.1, 3);
    costs.embedding = is_whole             ? static_cast<double>(dice.below(5))
                      : dice.below(3) == 0 ? 0
                                           : dice.between(0, 20);
    costs.head = is_whole ? static_cast<double>(dice.below(9)) : dice.between(0, 20);
    std::vector<double> layers(static_cast<size_t>(blocks) + 2, costs.block);
    layers.front() = costs.embedding;
    layers.back() = costs.head;
    const std::vector<int> wanted = spec::balanced_cut(layers, static_cast<int>(stages));
    const StageBlocks cut = balanced_blocks(static_cast<double>(blocks), stages, costs);
    for (int64_t stage = 1; stage < stages; ++stage) {
      // Layer 0 is the embedding.
      ASSERT_EQ(cut.before(stage) + 1, wanted[static_cast<size_t>(stage)])
          << "turn " << turn << ": stage " << stage << " of " << stages << ", " << blocks
          << " blocks of " << costs.block << ", ends " << costs.embedding << " " << costs.head;
    }
  }
}

TEST(StageBlocks, even_shares_leave_the_remainder_to_the_last) {
  const StageBlocks even = even_blocks(96, 8);
  for (int64_t stage = 0; stage < 8; ++stage) EXPECT_EQ(even.of(stage), 12);
  const StageBlocks uneven = even_blocks(11, 4);
  EXPECT_EQ(uneven.of(0), 3);
  EXPECT_EQ(uneven.of(2), 3);
  EXPECT_EQ(uneven.of(3), 2);
  const StageBlocks few = even_blocks(5, 4);
  EXPECT_EQ(few.of(2), 1);
  EXPECT_EQ(few.of(3), 0);
}

// Llama 3.1 405B has 126 blocks for stages of eight, GPT-3 of 14.6B 46 for 48 of one.
TEST(StageBlocks, two_blocks_too_few_leave_room_for_embedding_and_head) {
  const StageBlocks cut = even_blocks(126, 16);
  EXPECT_EQ(cut.of(0), 7);
  for (int64_t stage = 1; stage < 15; ++stage) EXPECT_EQ(cut.of(stage), 8);
  EXPECT_EQ(cut.of(15), 7);
  const StageBlocks ones = even_blocks(46, 48);
  EXPECT_EQ(ones.of(0), 0);
  EXPECT_EQ(ones.of(1), 1);
  EXPECT_EQ(ones.of(46), 1);
  EXPECT_EQ(ones.of(47), 0);
}

TEST(StageBlocks, every_block_is_on_one_stage) {
  for (int64_t stages = 1; stages <= 34; ++stages) {
    const StageBlocks cut = balanced_blocks(32, stages, {0, 1, 3.7});
    double sum = 0;
    for (int64_t stage = 0; stage < stages; ++stage) {
      EXPECT_GE(cut.of(stage), 0);
      sum += cut.of(stage);
    }
    EXPECT_EQ(sum, 32);
  }
}

}  // namespace
}  // namespace trireme::plan
