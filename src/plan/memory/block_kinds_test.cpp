// SPDX-License-Identifier: Apache-2.0
#include "plan/memory/block_kinds.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "plan/samples_test.h"

namespace trireme::plan {
namespace {

Layout recipe(const std::string& words) { return layout_from_text(words, 1); }

TEST(BlockKinds, blocks_of_one_model_are_of_one_kind) {
  const Job job = job_of("llama-1b", 8, 1024);
  for (const char* words : {"bf16", "fp8", "fp8-block", "fp16"}) {
    const BlockKinds kinds = block_kinds(job, trireme_stack(), recipe(words));
    EXPECT_TRUE(kinds.is_other.empty()) << words;
    EXPECT_EQ(kinds.main.layer, 1) << words;
    EXPECT_EQ(kinds.other.layer, 0) << words;
    EXPECT_EQ(kinds.main.has_float8, std::string(words).starts_with("fp8")) << words;
  }
}

TEST(BlockKinds, blocks_that_stay_in_bf16_are_the_second_kind) {
  const Job job = job_of("llama-1b", 8, 1024);  // 16 blocks
  const Layout l = recipe("fp8 bf16-first=2 bf16-last=1 bf16-blocks=1+7");
  const BlockKinds kinds = block_kinds(job, trireme_stack(), l);
  ASSERT_EQ(kinds.is_other.size(), 16U);
  EXPECT_EQ(std::ranges::count(kinds.is_other, true), 4);
  EXPECT_TRUE(kinds.is_other[0] && kinds.is_other[1] && kinds.is_other[7] && kinds.is_other[15]);
  EXPECT_EQ(kinds.main.layer, 3);
  EXPECT_TRUE(kinds.main.has_float8);
  EXPECT_EQ(kinds.other.layer, 1);
  EXPECT_FALSE(kinds.other.has_float8);
  // Other programs are priced by their own rates.
  EXPECT_TRUE(block_kinds(job, shipped_stack("megatron-core"), l).is_other.empty());
  const BlockKinds none = block_kinds(job, trireme_stack(), recipe("fp8 bf16-first=16"));
  EXPECT_TRUE(none.is_other.empty());
  EXPECT_FALSE(none.main.has_float8);
}

TEST(BlockKinds, experts_make_the_kinds_of_a_mixed_model) {
  const Job job = with_experts(job_of("llama-15m", 8, 256), 8, 2, 128, 0, 2);
  const BlockKinds kinds = block_kinds(job, trireme_stack(), recipe("fp8 bf16-first=1"));
  EXPECT_EQ(kinds.main.layer, 3);
  EXPECT_EQ(kinds.other.layer, 1);
  EXPECT_EQ(std::ranges::count(kinds.is_other, true), 2);
}

// ---- prices

double seconds_of(const Job& job, const std::string& words) {
  return Pricer(job, shipped_machine("h200"), trireme_stack()).price(recipe(words)).seconds;
}

TEST(BlockKinds, wide_blocks_gain_by_8_bits_and_narrow_ones_lose) {
  const Job wide = job_of("llama-3b", 4, 4096), narrow = job_of("gpt2-10m", 64, 256);
  const double wide_gain = seconds_of(wide, "micro=4") / seconds_of(wide, "micro=4 fp8");
  EXPECT_GT(wide_gain, 1.25);
  EXPECT_LT(wide_gain, 1.6);
  EXPECT_LT(seconds_of(wide, "micro=4 fp8-block"), seconds_of(wide, "micro=4"));
  EXPECT_GT(seconds_of(wide, "micro=4 fp8-block"), seconds_of(wide, "micro=4 fp8"));
  EXPECT_GT(seconds_of(narrow, "micro=64 fp8"), seconds_of(narrow, "micro=64"));
}

TEST(BlockKinds, every_block_in_bf16_costs_its_share) {
  const Job job = job_of("llama-1b", 4, 4096);
  const double fp8 = seconds_of(job, "micro=4 fp8"),
               some = seconds_of(job, "micro=4 fp8 bf16-first=4"),
               half = seconds_of(job, "micro=4 fp8 bf16-first=8"),
               all = seconds_of(job, "micro=4 fp8 bf16-first=16");
  EXPECT_LT(fp8, some);
  EXPECT_NEAR(half - fp8, 2 * (some - fp8), 1e-6);
  EXPECT_NEAR(all - fp8, 4 * (some - fp8), 1e-6);
  EXPECT_NEAR(all, seconds_of(job, "micro=4"), 1e-6);
}

}  // namespace
}  // namespace trireme::plan
