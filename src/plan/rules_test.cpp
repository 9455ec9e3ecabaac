// SPDX-License-Identifier: Apache-2.0
// broken_rule() and missing_in_engine().
#include <gtest/gtest.h>

#include "plan/layout_text.h"
#include "plan/samples_test.h"

namespace trireme::plan {
namespace {

std::string rule(const Job& job, const std::string& text, int64_t processors) {
  return broken_rule(job, layout_from_text(text, processors));
}

TEST(Rules, every_rule_says_which_numbers_break_it) {
  const Job gpt2 = job_of("gpt2-124m", 64, 1024), llama = job_of("llama-8b", 64, 4096);
  EXPECT_EQ(rule(gpt2, "tp=8", 8), "heads = 12 do not divide by tp = 8");
  EXPECT_EQ(rule(llama, "tp=8", 8), "");
  EXPECT_EQ(rule(llama, "tp=16", 16), "");  // copies of key and value heads
  EXPECT_EQ(rule(llama, "dp=3", 3), "batch = 64 does not divide by dp x micro-batch = 3 x 1");
  EXPECT_EQ(rule(llama, "micro=128", 1),
            "batch = 64 does not divide by dp x micro-batch = 1 x 128");
  EXPECT_EQ(rule(gpt2, "pp=16", 16), "pp x chunks = 16 x 1 are more stages than the 14 layers");
  EXPECT_EQ(rule(gpt2, "pp=14", 14), "");
  EXPECT_EQ(rule(llama, "pp=4 interleaved=2 micro=32", 4),
            "2 micro-batches do not divide by pp = 4, as interleaving needs");
  EXPECT_EQ(rule(llama, "pp=4 dualpipev micro=16", 4),
            "4 micro-batches are fewer than 2 pp = 8, as DualPipeV needs");
  EXPECT_EQ(rule(llama, "ep=2", 2), "ep = 2: the model has no experts");
  EXPECT_EQ(rule(llama, "cp=3", 3), "seq_len = 4096 does not divide by 2 cp = 6");
  Job odd = llama;
  odd.seq_len = 4095;
  EXPECT_EQ(rule(odd, "tp=2 sp", 2), "4095 tokens of a micro-batch do not divide by tp = 2");
  Job few = llama;
  std::get<spec::BlockSpec>(few.model.layers[1]).kv_heads = 6;
  EXPECT_EQ(rule(few, "tp=4", 4), "kv_heads = 6 do not divide by tp = 4");
  std::get<spec::BlockSpec>(few.model.layers[1]).kv_heads = 8;
  std::get<spec::BlockSpec>(few.model.layers[1]).ffn = 14338;
  EXPECT_EQ(rule(few, "tp=4", 4), "ffn = 14338 does not divide by tp = 4");
  Job experts = llama;
  experts.experts = Experts{.count = 8, .chosen = 2, .ffn = 1024};
  EXPECT_EQ(rule(experts, "ep=8", 8), "");
  EXPECT_EQ(rule(experts, "ep=16", 16), "8 experts do not divide by ep = 16");
  EXPECT_EQ(rule(experts, "tp=8 ep=8", 8), "dp x cp = 1 x 1 does not divide by ep = 8");
}

TEST(Rules, what_the_engine_lacks_is_said) {
  const Job job = job_of("llama-8b", 64, 4096);
  const auto lack = [&](const std::string& text, int64_t processors) {
    return missing_in_engine(job, layout_from_text(text, processors));
  };
  EXPECT_EQ(lack("tp=8 sp pp=2 zb-v", 16), "");
  EXPECT_EQ(lack("cp=2", 2), "context parallelism is not in the engine yet");
  EXPECT_EQ(lack("fp8", 1), "fp8 is not in the engine yet");
  EXPECT_EQ(lack("tp=16", 16), "kv_heads = 8 do not divide by tp = 16");
  EXPECT_EQ(lack("pp=2 zb-h1 zero=2", 4), "ZeRO-2 runs with 1f1b and interleaved, not with zb-h1");
  EXPECT_EQ(lack("pp=2 interleaved=2 zero=3", 4), "");
  EXPECT_EQ(lack("pp=2 pp-inside", 4), "the engine's mesh has data ranks side by side, not stages");
  EXPECT_EQ(lack("pp=2 pp-inside", 2), "");
  Job experts = job;
  experts.experts = Experts{.count = 8, .chosen = 2, .ffn = 1024};
  EXPECT_EQ(missing_in_engine(experts, {}), "experts are not in the engine yet");
}

}  // namespace
}  // namespace trireme::plan
