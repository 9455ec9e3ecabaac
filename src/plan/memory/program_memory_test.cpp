// SPDX-License-Identifier: Apache-2.0
#include "plan/memory/program_memory.h"

#include <gtest/gtest.h>

#include "plan/samples_test.h"
#include "spec/layout/layout_text.h"

namespace trireme::plan {
namespace {

Price priced(const std::string& stack, const std::string& layout, int64_t gpus = 8) {
  return Pricer(job_of("llama3.1-8b", 64, 8192), shipped_machine("h100"), shipped_stack(stack))
      .price(layout_from_text(layout, gpus));
}

constexpr double params = 8.03e9;

TEST(ProgramMemory, state_follows_the_program) {
  // FSDP keeps parameters only in fp32: 16 bytes per parameter, sharded.
  const Price fsdp = priced("fsdp", "zero=3 micro=1");
  EXPECT_NEAR(fsdp.at(Item::weights) + fsdp.at(Item::gradients) + fsdp.at(Item::optimizer),
              16 * params / 8, 0.01 * 16 * params / 8);
  EXPECT_EQ(fsdp.at(Item::weights), 0);
  EXPECT_NEAR(priced("fsdp", "zero=2 micro=1").at(Item::weights), 2 * params, 0.01 * params);
  // Megatron keeps weights in bf16 and gradients in fp32 on every rank.
  const Price megatron = priced("megatron-core", "zero=1 micro=1");
  EXPECT_NEAR(megatron.at(Item::weights), 2 * params, 0.01 * params);
  EXPECT_NEAR(megatron.at(Item::gradients), 4 * params, 0.01 * params);
  EXPECT_NEAR(megatron.at(Item::optimizer), 12 * params / 8, 0.01 * params);
}

// Bytes per token and layer, counted by hand: docs/planner.md, part "Other programs".
TEST(ProgramMemory, activations_are_counted_by_element) {
  const double tokens = 8192, layers = 32, width = 4096, key = 1024, ffn = 14336;
  const auto of = [&](const std::string& stack, const std::string& layout) {
    return priced(stack, layout).at(Item::activations) / (tokens * layers);
  };
  const double statistics = 4 * 32;
  EXPECT_NEAR(of("torchtitan-eager", "zero=3 micro=1"), 24 * width + 8 * ffn + statistics, 1);
  EXPECT_NEAR(of("torchtitan-eager", "zero=3 micro=1 full"), 2 * width, 1);
  EXPECT_NEAR(of("torchtitan-eager", "zero=3 micro=1 selective"),
              8 * width + 2 * key + 2 * ffn + statistics, 1);
  EXPECT_NEAR(of("megatron-core", "zero=1 micro=1"), 12 * width + 4 * key + 6 * ffn + statistics,
              1);
}

TEST(ProgramMemory, sequence_parallelism_shards_activations_that_tp_replicates) {
  const auto of = [](const std::string& stack, const std::string& layout) {
    return priced(stack, layout).at(Item::activations);
  };
  const double one = of("megatron-core", "zero=1 micro=1");
  const double tp = of("megatron-core", "tp=4 zero=1 micro=1");
  const double sp = of("megatron-core", "tp=4 sp zero=1 micro=1");
  EXPECT_NEAR(sp, one / 4, 0.001 * one);
  EXPECT_GT(tp, sp);
  // TorchTitan keeps gathered activations.
  EXPECT_GT(of("torchtitan", "tp=4 sp zero=3 micro=1"),
            of("torchtitan", "zero=3 micro=1") / 4 * 1.05);
}

TEST(ProgramMemory, scores_are_kept_without_flash_attention) {
  const Job job = job_of("gpt3-175b", 64, 2048);
  const spec::Machine machine = shipped_machine("a100-80gb");
  const auto kept = [&](const std::string& text) {
    return Pricer(job, machine, shipped_stack("megatron-2022"))
        .price(layout_from_text(text, 64))
        .at(Item::activations);
  };
  // Korthikanti et al. 2022, tables 1 and 2: s b h (34 + 5 a s / h) / t, and 34 / t selective.
  const double sbh = 2048.0 * 12288, layers = 12, in_flight = 8;
  EXPECT_NEAR(kept("tp=8 sp pp=8 micro=1"),
              sbh * (34 + 5 * 96 * 2048.0 / 12288) / 8 * layers * in_flight,
              0.01 * sbh * 114 / 8 * layers * in_flight);
  EXPECT_NEAR(kept("tp=8 sp pp=8 micro=1 selective"), sbh * 34 / 8 * layers * in_flight,
              0.01 * sbh * 34 / 8 * layers * in_flight);
}

TEST(ProgramMemory, the_loss_scales_with_bytes_per_logit) {
  Stack stack = shipped_stack("fsdp");
  const Job job = job_of("llama3.1-8b", 64, 8192);
  const spec::Machine machine = shipped_machine("h100");
  const Layout l = layout_from_text("zero=3 micro=1 full", 8);
  const Price before = Pricer(job, machine, stack).price(l);
  stack.memory.logit_bytes += 2;
  const Price after = Pricer(job, machine, stack).price(l);
  EXPECT_NEAR(after.at(Item::working) - before.at(Item::working), 2 * 8192.0 * 128256, 1);
}

TEST(ProgramMemory, allocator_overhead_counts_as_reserved) {
  Stack stack = shipped_stack("megatron-core");
  const Job job = job_of("llama3.1-8b", 64, 8192);
  const spec::Machine machine = shipped_machine("h100");
  const Layout l = layout_from_text("zero=1 micro=1 full", 8);
  const Price tight = Pricer(job, machine, stack).price(l);
  EXPECT_EQ(tight.at(Item::reserved), machine.processor.reserved_bytes);
  const double allocated = tight.bytes - tight.at(Item::reserved);
  stack.memory.fragmentation = 1.1;
  stack.memory.extra_bytes = 1e9;
  const Price loose = Pricer(job, machine, stack).price(l);
  EXPECT_NEAR(loose.bytes - tight.bytes, 0.1 * allocated + 1e9, 1e3);
  stack.memory.fragmentation = 1;
  stack.memory.extra_bytes = 0;
  stack.memory.keeps_pools = true;
  EXPECT_GT(Pricer(job, machine, stack).price(l).bytes, tight.bytes);
}

}  // namespace
}  // namespace trireme::plan
