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

// ---- pipelines: six blocks, with embedding and head eight layers

Texts pipeline_texts(JobLayout layout) {
  ModelDims model = dims;
  model.layers = 6;
  Texts all;
  for (const LayoutProblem& problem : check_layout(model, layout, layout_names()).problems) {
    all.push_back(problem.text);
  }
  return all;
}

TEST(JobLayout, a_pipeline_needs_a_schedule_that_is_executed) {
  EXPECT_EQ(pipeline_texts({.pp = 2, .schedule = "2f2b"}),
            Texts{"schedule = 2f2b: there is no such schedule; there are gpipe, 1f1b, interleaved, "
                  "zb-h1, zb-h2, zb-v or dualpipe-v"});
  EXPECT_EQ(pipeline_texts({.pp = 2, .schedule = "DualPipe"}),
            Texts{"schedule = DualPipe: its two lanes keep every stage's parameters twice, which "
                  "this build does not execute; nearest: dualpipe-v, the same overlap in one "
                  "lane"});
  EXPECT_EQ(pipeline_texts({.pp = 2, .schedule = "1f1b", .chunks = 2}),
            Texts{"chunks = 2: 1f1b has 1 a rank; nearest: 1, or schedule = interleaved, which "
                  "takes any"});
  for (const char* name : {"GPipe", "1F1B", "Interleaved", "ZB_H1", "zbh2", "ZB-V"}) {
    EXPECT_EQ(pipeline_texts({.global_batch = 4, .schedule = name}), Texts{}) << name;
    EXPECT_EQ(pipeline_texts({.pp = 2, .global_batch = 4, .schedule = name}), Texts{}) << name;
  }
}

TEST(JobLayout, a_pipeline_needs_enough_micro_batches_and_layers) {
  EXPECT_EQ(pipeline_texts({.pp = 2, .local_batch = 3, .global_batch = 9, .schedule = "dualpipev"}),
            Texts{"global_batch = 9: a rank runs 3 micro-batches in a step: dualpipe-v on 2 ranks "
                  "needs at least 4 micro-batches, found 3: the nearest are 4 micro-batches, or 1 "
                  "ranks; nearest: global_batch = 12"});
  EXPECT_EQ(pipeline_texts({.pp = 16}),
            Texts{"pp = 16: that makes 16 stages (1 on each rank), and the model has 8 layers with "
                  "embedding and head; nearest: pp = 8"});
  EXPECT_EQ(pipeline_texts({.pp = 4, .schedule = "interleaved", .chunks = 3}),
            Texts{"pp = 4: that makes 12 stages (3 on each rank), and the model has 8 layers with "
                  "embedding and head; nearest: pp = 2"});
  EXPECT_EQ(pipeline_texts({.pp = 2, .first_layers = {0, 3, 5}}),
            Texts{"first_layers = [0, 3, 5]: must be the first layers of the 2 stages, rising from "
                  "0 to 7 at most (0 is the embedding, 7 the head), or empty"});
  for (const std::vector<int64_t>& cut :
       std::vector<std::vector<int64_t>>{{1, 3}, {0, 0}, {0, 8}, {0}}) {
    EXPECT_EQ(pipeline_texts({.pp = 2, .first_layers = cut}).size(), 1U);
  }
  EXPECT_EQ(pipeline_texts({.pp = 2, .first_layers = {0, 7}}), Texts{});
}

TEST(JobLayout, degrees_of_the_pipeline_count_and_are_offered_as_the_model_allows) {
  EXPECT_EQ(pipeline_texts({.world = 12, .tp = 4, .pp = 2}),
            Texts{"tp = 4 x pp = 2: that is 8 ranks, and there are 12; nearest: pp = 3 or dp = 3 "
                  "with pp = 1, or 8 ranks"});
  const LayoutCheck open = check_layout(dims, {.world = 12, .dp = 2, .pp = -1}, layout_names());
  EXPECT_EQ(open.layout.pp, 6);
}

TEST(JobLayout, sharded_gradients_and_workers_in_turn_need_1f1b) {
  const auto texts_of = [](const char* schedule, int64_t stage, int64_t workers) {
    return pipeline_texts({.zero = 2,
                           .pp = 2,
                           .zero_stage = stage,
                           .logical_dp = workers,
                           .global_batch = 4 * workers,
                           .schedule = schedule});
  };
  for (const char* name : {"1f1b", "interleaved"}) {
    EXPECT_EQ(texts_of(name, 3, 2), Texts{}) << name;
    EXPECT_EQ(texts_of(name, 1, 4), Texts{}) << name;
  }
  for (const char* name : {"gpipe", "zb-h1", "zb-h2", "zb-v", "dualpipev"}) {
    EXPECT_EQ(texts_of(name, 1, 2), Texts{}) << name;
    const Texts sharded = texts_of(name, 2, 2);
    ASSERT_EQ(sharded.size(), 1U) << name;
    EXPECT_NE(sharded[0].find("zero_stage = 2"), std::string::npos) << sharded[0];
    EXPECT_NE(sharded[0].find("1f1b, or interleaved"), std::string::npos) << sharded[0];
  }
  for (const char* name : {"gpipe", "zb-h1", "zb-h2"}) {
    EXPECT_EQ(texts_of(name, 1, 4).size(), 1U) << name;
  }
}

TEST(JobLayout, a_tied_table_on_one_rank_takes_one_leaf_at_a_time) {
  for (const char* name : {"zb-v", "dualpipev"}) {
    for (const bool tied : {true, false}) {
      ModelDims model = dims;
      model.layers = 6;
      model.tied_head = tied;
      const JobLayout layout{.pp = 2, .logical_dp = 2, .global_batch = 8, .schedule = name};
      const auto problems = check_layout(model, layout, layout_names()).problems;
      if (!tied) {
        EXPECT_TRUE(problems.empty()) << name << problems.front().text;
        continue;
      }
      ASSERT_EQ(problems.size(), 1U) << name;
      EXPECT_NE(problems[0].text.find("table that embedding and head share"), std::string::npos)
          << problems[0].text;
    }
  }
}

TEST(JobLayout, a_pipelines_parameters_stay_unless_asked_otherwise) {
  const auto keeps = [](JobLayout layout) {
    layout.zero = 2;
    return split_of(check_layout(dims, layout, layout_names()).layout).keep_params;
  };
  EXPECT_TRUE(keeps({.pp = 2}));
  EXPECT_FALSE(keeps({.pp = 2, .zero_stage = 2}));
  EXPECT_FALSE(keeps({.pp = 2, .keep_params = false}));
  EXPECT_FALSE(keeps({}));
  EXPECT_TRUE(keeps({.keep_params = true}));
}

}  // namespace
}  // namespace trireme::spec
