// SPDX-License-Identifier: Apache-2.0
#include "spec/job_layout.h"

#include <gtest/gtest.h>

namespace trireme::spec {
namespace {

const ModelDims dims{.heads = 8, .kv_heads = 4, .ffn = 96};

std::vector<std::string> texts(const JobLayout& layout) {
  std::vector<std::string> all;
  for (const LayoutProblem& problem : check_layout(dims, layout, layout_names()).problems) {
    EXPECT_FALSE(problem.keys.empty()) << problem.text;
    all.push_back(problem.text);
  }
  return all;
}
using Texts = std::vector<std::string>;

TEST(JobLayout, what_is_left_open_is_filled_in) {
  const JobLayout one = check_layout(dims, {.zero = -1, .local_batch = 3}, layout_names()).layout;
  EXPECT_EQ(one.ranks(), 1);
  EXPECT_EQ(one.zero_stage, 0);
  EXPECT_EQ(one.global_batch, 3);
  const LayoutCheck check = check_layout(
      dims, {.world = 16, .dp = 2, .zero = -1, .tp = 2, .global_batch = 24}, layout_names());
  EXPECT_TRUE(check.problems.empty());
  EXPECT_EQ(check.layout.zero, 4);
  EXPECT_EQ(check.layout.zero_stage, 3);
  EXPECT_EQ(check.layout.logical_dp, 8);
  EXPECT_EQ(check.layout.microbatches(), 3);
  EXPECT_EQ(check.layout.reduce, ReduceWhen::each);
  const SplitOptions split = split_of(check.layout);
  EXPECT_EQ(split.zero, 4);
  EXPECT_TRUE(split.residency.params);
  EXPECT_EQ(split.reduce, ReduceWhen::each);
}

TEST(JobLayout, what_says_nothing_is_not_refused) {
  const LayoutCheck check = check_layout(
      dims, {.zero = -1, .zero_stage = 2, .sequence_parallel = true, .seq_len = 7}, layout_names());
  EXPECT_TRUE(check.problems.empty());
  EXPECT_EQ(split_of(check.layout).residency, Residency{});
  EXPECT_FALSE(split_of(check.layout).sequence_parallel);
}

TEST(JobLayout, degrees_must_multiply_to_the_world) {
  EXPECT_EQ(texts({.world = 6, .dp = 2, .zero = 2}),
            Texts{"dp = 2 x zero = 2: that is 4 ranks, and there are 6; nearest: dp = 3 or zero = "
                  "3, or 4 ranks"});
  EXPECT_EQ(texts({.world = 6, .dp = 4, .zero = -1}),
            Texts{"dp = 4: 6 ranks do not divide by 4; nearest: dp = 3 or dp = 6"});
  EXPECT_EQ(texts({.world = 2}),
            Texts{"dp = 1: that is 1 rank, and there are 2; nearest: dp = 2 or zero = 2, or 1 "
                  "rank"});
  // Degrees of the tensor axis that the model does not take are not offered.
  EXPECT_EQ(texts({.world = 12, .tp = 4}),
            Texts{"tp = 4: that is 4 ranks, and there are 12; nearest: dp = 3 or zero = 3, or 4 "
                  "ranks"});
}

TEST(JobLayout, the_model_must_divide_by_tp) {
  EXPECT_EQ(texts({.tp = 3}), Texts{"tp = 3: heads = 8 and kv_heads = 4 do not divide by it; "
                                    "nearest: 2 or 4"});
  EXPECT_EQ(texts({.tp = 8}), Texts{"tp = 8: kv_heads = 4 does not divide by it; nearest: 4"});
  EXPECT_EQ(texts({.world = 6, .zero = -1, .tp = 3}),
            Texts{"tp = 3: heads = 8 and kv_heads = 4 do not divide by it; nearest: 2"});
}

TEST(JobLayout, every_rank_has_rows_of_the_vocabulary) {
  const ModelDims small{.heads = 8, .ffn = 8, .vocab = 5};
  const auto problems = check_layout(small, {.tp = 4}, layout_names()).problems;
  ASSERT_EQ(problems.size(), 1U);
  EXPECT_EQ(problems[0].text, "tp = 4: a vocabulary of 5 leaves a rank without a row; nearest: 2");
}

TEST(JobLayout, the_batch_must_divide) {
  EXPECT_EQ(texts({.dp = 4, .local_batch = 2, .global_batch = 20}),
            Texts{"global_batch = 20: must be a multiple of local_batch = 2 x 4 data ranks = 8; "
                  "nearest: 16 or 24"});
  EXPECT_EQ(texts({.dp = 2, .logical_dp = 8, .local_batch = 2, .global_batch = 8}),
            Texts{"global_batch = 8: must be a multiple of local_batch = 2 x 8 workers "
                  "(logical_dp) = 16; nearest: 16"});
  EXPECT_EQ(texts({.dp = 4, .logical_dp = 6}),
            Texts{"logical_dp = 6: must be a multiple of the 4 data ranks; nearest: 4 or 8"});
  EXPECT_EQ(texts({.tp = 4, .sequence_parallel = true, .local_batch = 2, .seq_len = 15}),
            Texts{"seq_len = 15: with sequence_parallel the 30 tokens of a micro-batch must divide "
                  "by tp = 4; nearest: 14 or 16"});
}

TEST(JobLayout, sharded_gradients_are_summed_after_each_micro_batch) {
  EXPECT_EQ(
      texts({.zero = 2, .zero_stage = 2, .reduce = ReduceWhen::once, .global_batch = 4}).size(),
      1U);
  EXPECT_TRUE(
      texts({.zero = 2, .zero_stage = 1, .reduce = ReduceWhen::once, .global_batch = 4}).empty());
  EXPECT_EQ(texts({.zero = 2, .zero_stage = 0}),
            Texts{"zero_stage = 0: shards nothing over zero = 2; nearest: 1, or dp = 2 with zero = "
                  "1"});
}

TEST(JobLayout, every_broken_rule_is_told) {
  EXPECT_EQ(
      texts(
          {.world = 5, .dp = 2, .tp = 3, .logical_dp = 3, .sequence_parallel = true, .seq_len = 16})
          .size(),
      4U);
}

}  // namespace
}  // namespace trireme::spec
