// SPDX-License-Identifier: Apache-2.0
// Jobs with a known answer, which the search must find.
#include <gtest/gtest.h>

#include "base/error.h"
#include "plan/price/price.h"
#include "tests/planner/rules_rig.h"

namespace trireme::tests {
namespace {

// 512 sequences of 8,192: 4M tokens.
plan::Job four_million() { return job_of(shipped_model("llama3-70b"), 8192, 512); }

TEST(KnownAnswers, tp_in_the_node_with_zero1_beats_tp_with_zero3_across_nodes) {
  const spec::Machine machine = shipped_machine("h100");
  const ThreeLayouts all = three_layouts();
  EXPECT_LT(fastest_seconds(four_million(), machine, 1024, all.b),
            fastest_seconds(four_million(), machine, 1024, all.a));
}

TEST(KnownAnswers, zero3_alone_has_more_ranks_than_sequences) {
  EXPECT_THROW((void)fastest(four_million(), shipped_machine("h100"), 1024, three_layouts().c),
               base::ConfigError);
  const spec::Layout alone{.dp_shard = 1024, .zero_stage = 3};
  EXPECT_NE(plan::broken_rule(four_million(), alone).find("batch = 512"), std::string::npos);
}

TEST(KnownAnswers, the_best_layout_of_70b_uses_tp_inside_the_node) {
  const spec::Machine machine = shipped_machine("h100");
  const spec::Layout best = fastest(four_million(), machine, 1024).best.value().layout;
  EXPECT_GT(best.tp, 1);
  EXPECT_LE(best.tp, machine.domain.size);
  EXPECT_EQ(best.zero_stage, 1);
}

TEST(KnownAnswers, a_70b_model_does_not_fit_in_one_node) {
  const spec::Machine machine = shipped_machine("h100");
  const plan::SearchResult result =
      fastest(job_of(shipped_model("llama3-70b"), 8192, 512), machine, 8);
  EXPECT_FALSE(result.best.has_value());
  EXPECT_TRUE(result.front.empty());
  EXPECT_EQ(result.too_large, result.priced);
  EXPECT_GT(result.smallest.value().price.bytes, machine.processor.memory_bytes);
  // Every rejected family has a reason.
  int by_memory = 0;
  for (const plan::Rejected& family : result.rejected) {
    EXPECT_FALSE(family.reason.empty());
    by_memory += family.missing_bytes > 0 ? 1 : 0;
  }
  EXPECT_GT(by_memory, 0);
}

TEST(KnownAnswers, tp_stays_in_the_domain_if_there_are_enough_sequences) {
  struct Case {
    const char *model, *machine;
    int64_t seq_len, sequences, gpus;
  };
  for (const Case& c : {Case{"llama-8b", "h100", 8192, 128, 64},
                        {"llama3-70b", "h100", 8192, 512, 1024},
                        {"gpt3-175b", "a100-80gb", 2048, 1536, 1024},
                        {"gpt3-175b", "a100-80gb", 2048, 4096, 4096},
                        {"llama3-405b", "h100", 8192, 2048, 16384}}) {
    const spec::Machine machine = shipped_machine(c.machine);
    const auto best =
        fastest(job_of(shipped_model(c.model), c.seq_len, c.sequences), machine, c.gpus).best;
    ASSERT_TRUE(best.has_value()) << c.model;
    EXPECT_LE(best->layout.tp, machine.domain.size) << c.model << " " << c.gpus;
  }
}

// Four blocks of 37B parameters each; the state of one exceeds the memory of eight GPUs.
spec::ModelSpec few_wide_blocks() {
  spec::ModelDims dims;
  dims.name = "wide";
  dims.layers = 4;
  dims.hidden = 57344;
  dims.heads = 448;
  dims.kv_heads = 64;
  dims.ffn = 172032;
  dims.vocab = 32000;
  dims.max_seq = 4096;
  return spec::make_model(dims);
}

TEST(KnownAnswers, tp_crosses_the_domain_if_nothing_else_fits) {
  const spec::Machine machine = shipped_machine("h100");
  // With one sequence there are no data ranks to shard the state over.
  const plan::SearchResult alone = fastest(job_of(few_wide_blocks(), 4096, 1), machine, 64);
  ASSERT_TRUE(alone.best.has_value());
  EXPECT_GT(alone.best->layout.tp, machine.domain.size);
  for (const plan::Candidate& family : alone.families) {
    EXPECT_GT(family.layout.tp, machine.domain.size);
  }
  // With data ranks, ZeRO shards it instead.
  const plan::SearchResult many = fastest(job_of(few_wide_blocks(), 4096, 256), machine, 256);
  ASSERT_TRUE(many.best.has_value());
  EXPECT_LE(many.best->layout.tp, machine.domain.size);
}

TEST(KnownAnswers, stages_cross_nodes) {
  const spec::Machine machine = shipped_machine("h100");
  const plan::Job job = job_of(shipped_model("llama3-405b"), 8192, 2048);
  const plan::Candidate best = fastest(job, machine, 16384).best.value();
  EXPECT_EQ(best.layout.tp, machine.domain.size);
  EXPECT_GT(best.layout.pp, 1);
  EXPECT_LT(best.price.at(plan::Term::messages), 0.01 * best.price.seconds);
}

// Llama 3 405B was trained with TP8 PP16 on 16,384 H100.
TEST(KnownAnswers, the_layout_of_llama3_is_the_best_with_zero1) {
  const plan::Job job = job_of(shipped_model("llama3-405b"), 8192, 2048);
  const plan::Candidate best =
      fastest(job, shipped_machine("h100"), 16384, {.zero = {1}}).best.value();
  EXPECT_EQ(best.layout.tp, 8);
  EXPECT_EQ(best.layout.pp, 16);
  EXPECT_EQ(best.layout.data_ranks(), 128);
  EXPECT_EQ(best.layout.schedule, schedule::Kind::interleaved);
}

}  // namespace
}  // namespace trireme::tests
