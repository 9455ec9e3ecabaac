// SPDX-License-Identifier: Apache-2.0
// The rules of spec/layout/rules.h as the planner applies them.
#include <gtest/gtest.h>

#include "plan/samples_test.h"
#include "plan/search/search.h"
#include "spec/layout/layout_text.h"
#include "spec/layout/rule_samples_test.h"

namespace trireme::plan {
namespace {

std::string rule(const Job& job, const std::string& text, int64_t gpus) {
  return broken_rule(job, layout_from_text(text, gpus));
}

TEST(PlanRules, rules_of_any_program_name_the_numbers_that_break_them) {
  const Job gpt2 = job_of("gpt2-124m", 64, 1024), llama = job_of("llama-8b", 64, 4096);
  EXPECT_EQ(rule(gpt2, "tp=8", 8),
            "tp = 8: heads = 12 and kv_heads = 12 do not divide by it; nearest: 6 or 12 "
            "[tp.divides]");
  EXPECT_EQ(rule(llama, "tp=8", 8), "");
  EXPECT_EQ(rule(llama, "tp=16", 16), "");  // copies of key and value heads
  EXPECT_EQ(rule(llama, "dp=3", 3),
            "batch = 64: must be a multiple of micro-batch = 1 x 3 data ranks = 3; nearest: 63 or "
            "66 [batch.divides]");
  EXPECT_NE(rule(llama, "micro=128", 1).find("[batch.divides]"), std::string::npos);
  EXPECT_NE(rule(gpt2, "pp=16", 16).find("[pp.stages]"), std::string::npos);
  EXPECT_EQ(rule(gpt2, "pp=14", 14), "");
  EXPECT_NE(rule(llama, "pp=4 dualpipev micro=16", 4).find("[schedule.micro_batches]"),
            std::string::npos);
  EXPECT_EQ(rule(llama, "ep=2", 2), "ep = 2: the model has no experts; nearest: 1 [ep.divides]");
  EXPECT_NE(rule(llama, "cp=3", 3).find("[cp.seq_len]"), std::string::npos);
  Job odd = llama;
  odd.seq_len = 4095;
  EXPECT_NE(rule(odd, "tp=2 sp", 2).find("[sp.tokens]"), std::string::npos);
  Job few = llama;
  std::get<spec::BlockSpec>(few.model.layers[1]).kv_heads = 6;
  EXPECT_NE(rule(few, "tp=4", 4).find("kv_heads = 6 does not divide by it"), std::string::npos);
  std::get<spec::BlockSpec>(few.model.layers[1]).kv_heads = 8;
  std::get<spec::BlockSpec>(few.model.layers[1]).ffn = 14338;
  EXPECT_NE(rule(few, "tp=4", 4).find("ffn = 14338 does not divide by it"), std::string::npos);
  const Job experts = with_experts(llama, 8, 2, 1024);
  EXPECT_EQ(rule(experts, "ep=8", 8), "");
  EXPECT_NE(rule(experts, "ep=16", 16).find("8 experts do not divide"), std::string::npos);
  EXPECT_EQ(rule(experts, "tp=8 ep=8", 8), "") << "ranks along tp have experts, too";
  EXPECT_NE(rule(experts, "tp=2 ep=8", 4).find("[ep.ranks]"), std::string::npos);
}

TEST(PlanRules, missing_engine_features_are_named) {
  const Job job = job_of("llama-8b", 64, 4096);
  const auto lack = [&](const std::string& text, int64_t ranks) {
    return missing_in_engine(job, layout_from_text(text, ranks));
  };
  const auto has = [&](const std::string& text, int64_t ranks, const char* id) {
    EXPECT_NE(lack(text, ranks).find(id), std::string::npos) << text << ": " << lack(text, ranks);
  };
  EXPECT_EQ(lack("tp=8 sp pp=2 zb-v", 16), "");
  EXPECT_EQ(lack("cp=2 kind=ring", 2), "");
  has("fp4", 1, "fp4: not in the engine");
  EXPECT_EQ(lack("fp8-block", 1), "");
  has("fp8 ffn-rows=128", 1, "[precision.tiles]");
  has("tp=16", 16, "[tp.kv_heads]");
  has("pp=2 zb-h1 zero=2", 4, "[zero.split_backward]");
  EXPECT_EQ(lack("pp=2 interleaved=2 zero=3", 4), "");
  has("pp=2 pp-inside", 4, "[placement.engine]");
  EXPECT_EQ(lack("pp=2 pp-inside", 2), "");
  const Job experts = with_experts(job, 8, 2, 1024);
  EXPECT_EQ(missing_in_engine(experts, {}), "");
  EXPECT_NE(missing_in_engine(experts, {.tp = 2}).find("[ep.sequence]"), std::string::npos);
}

Job job_of_sample(const spec::BrokenSample& sample) {
  Job job;
  job.model = spec::make_model(spec::sample_dims(sample));
  job.seq_len = sample.work.seq_len;
  for (spec::LayerSpec& layer : job.model.layers) {
    auto* block = std::get_if<spec::BlockSpec>(&layer);
    if (block != nullptr) block->qk_norm = block->qk_norm_whole = sample.whole_qk_norm;
  }
  if (sample.experts > 0) job = with_experts(job, sample.experts, 1, spec::sample_expert_ffn);
  return job;
}

TEST(PlanRules, every_rejected_layout_names_its_rule) {
  for (const spec::BrokenSample& sample : spec::broken_samples()) {
    // Rules about the number of available ranks and about inference do not apply to the planner.
    if (sample.ranks != 0 || sample.work.inference) continue;
    Job job = job_of_sample(sample);
    job.global_batch = sample.work.global_batch;
    const std::string text = missing_in_engine(job, sample.asked);
    EXPECT_NE(text.find("[" + sample.id + "]"), std::string::npos) << sample.id << ": " << text;
  }
}

// Layouts that the search rejects carry the rule's id.
TEST(PlanRules, the_search_names_the_rule_that_rejects_a_family) {
  const spec::Machine machine = shipped_machine("h100");
  const auto reasons = [&](const char* model, const Space& space, int64_t ranks) {
    SearchOptions options;
    options.gpus = ranks;
    options.space = space;
    std::string all;
    for (const Rejected& r :
         search(job_of(model, 64, 4096), machine, trireme_stack(), options).rejected) {
      all += r.reason + "\n";
    }
    return all;
  };
  EXPECT_NE(reasons("llama-8b", {.tp = {16}}, 16).find("[tp.kv_heads]"), std::string::npos);
  EXPECT_NE(reasons("llama-8b", {.pp = {2}, .zero = {2}, .pipes = {Kind::zb_h1}}, 4)
                .find("[zero.split_backward]"),
            std::string::npos);
  EXPECT_NE(
      reasons("llama-8b", {.pp = {2}, .zero = {3}, .micro_batch = {1}, .pipes = {Kind::gpipe}}, 4)
          .find("[zero.order]"),
      std::string::npos);
  EXPECT_NE(reasons("llama-8b", {.pp = {4}, .micro_batch = {16}, .pipes = {Kind::dualpipe_v}}, 4)
                .find("[schedule.micro_batches]"),
            std::string::npos);
}

}  // namespace
}  // namespace trireme::plan
