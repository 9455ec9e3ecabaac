// SPDX-License-Identifier: Apache-2.0
// Compares the planner's bytes with the engine's prediction (spec/memory/predict.h), to the byte.
#include "plan/memory/engine_memory.h"

#include <gtest/gtest.h>

#include "plan/samples_test.h"
#include "plan/search/confirm.h"
#include "spec/layout/layout_text.h"

namespace trireme::plan {
namespace {

// Returns the memory table of the rank with the highest total, without gaps.
spec::MemoryTable exact_memory(const Job& job, const Layout& l) {
  const spec::Plan plan = spec::solve_or_throw(job.model, workload_of(job), l, job.backend);
  spec::MemoryTable max_table;
  for (spec::MemoryTable rank : plan.predicted.memory) {
    rank.stash_gaps = 0;
    if (rank.total() > max_table.total()) max_table = rank;
  }
  return max_table;
}

void expect_exact(const Job& job, const Layout& l) {
  const spec::Machine machine = shipped_machine("h100");
  const spec::MemoryTable exact = exact_memory(job, l);
  const Price price = Pricer(job, machine, trireme_stack()).price(l);
  const double reserved = machine.processor.reserved_bytes;
  EXPECT_EQ(price.bytes - reserved, static_cast<double>(exact.total()))
      << job.model.name << ", " << job.global_batch << " x " << job.seq_len << ", "
      << job.backend.name << (job.backend.deterministic ? "" : " fast") << ": " << to_text(l);
}

Layout with_types(Dice& dice, Layout l) {
  const base::DType f32 = base::DType::f32, bf16 = base::DType::bf16;
  l.grad_dtype = dice.of<base::DType>({f32, bf16});
  if (l.precision == Precision::fp16) l.grad_dtype = f32;
  l.reduce_dtype = dice.of<base::DType>({f32, bf16});
  if (l.precision == Precision::bf16 || spec::is_fp8(l.precision)) {
    l.master_dtype = dice.of<base::DType>({f32, base::DType::u16});
  }
  return l;
}

spec::Backend any_backend(Dice& dice) {
  return dice.of<spec::Backend>(
      {spec::cuda_backend(true), spec::cuda_backend(false), spec::cpu_backend()});
}

// Returns a random layout with more values of pp and chunks than any_layout() has.
Layout any_pipeline(Dice& dice, const Job& job,
                    const std::vector<Precision>& precisions = {Precision::fp32, Precision::bf16}) {
  while (true) {
    Layout l = any_layout(dice);
    l.precision = dice.of(precisions);
    if (spec::is_fp8(l.precision)) {
      l.bf16_first = dice.of<int>({0, 0, 1, 3});
      l.bf16_last = dice.of<int>({0, 0, 1, 2});
      if (dice.below(3) == 0) l.bf16_blocks = {2, 5, 6};
    }
    l.pp = dice.of<int>({1, 2, 3, 4, 6, 8, 12, 16, 24});
    l.schedule = Kind::one_f_one_b;
    if (l.pp > 1) l.schedule = any_schedule(dice);
    l.chunks = l.schedule == Kind::interleaved ? dice.of<int>({2, 3, 4, 5, 7})
                                               : schedule::chunks_of(l.schedule);
    // HSDP: two copies of the state.
    if (l.zero_stage > 0 && l.dp_shard >= 4 && dice.below(3) == 0) {
      l.dp_shard /= 2;
      l.dp_replicate = 2;
    }
    if (dice.below(3) == 0) {
      l.cp = dice.of<int>({2, 4, 8});
      l.context_kind =
          static_cast<spec::ContextKind>(dice.below(static_cast<size_t>(spec::ContextKind::count)));
      if (l.data_ranks() == 1) l.zero_stage = static_cast<int>(dice.below(4));
      l = filled(job, l);
    }
    // The planner models interleaving only in complete groups of micro-batches.
    const bool is_whole = l.schedule != Kind::interleaved || micro_batches(job, l) % l.pp == 0;
    if (is_whole && missing_in_engine(job, l).empty()) return l;
  }
}

// Layouts without given cuts or custom schedules, which are priced otherwise (Price::bytes).
TEST(EngineMemory, is_exact_for_named_schedules_and_balanced_stages) {
  constexpr uint64_t seed = 7;
  SCOPED_TRACE(seed);
  Dice dice(seed);
  for (const char* name : {"gpt2-124m", "gpt2-1.5b", "qwen2-0.5b", "qwen3-0.6b", "llama-1b",
                           "llama-8b", "llama3-70b", "gpt3-175b"}) {
    for (const int64_t batch : {8, 48, 64, 256}) {
      for (int i = 0; i < 25; ++i) {
        Job job = job_of(name, batch, dice.of<int64_t>({128, 1024, 4096}));
        job.backend = any_backend(dice);
        job.keeps_losses = dice.below(2) == 1;
        Layout l = with_types(dice, any_pipeline(dice, job));
        l.head_chunk_rows = dice.of<int64_t>({0, 0, 100, 4096});
        expect_exact(job, l);
      }
    }
  }
}

// Blocks with codes of 8 bits have other slots, buckets and scratch than those that stay in bf16.
TEST(EngineMemory, is_exact_for_recipes_of_fp8_and_fp16) {
  constexpr uint64_t seed = 17;
  SCOPED_TRACE(seed);
  Dice dice(seed);
  const std::vector<Precision> precisions = {Precision::fp8, Precision::fp8_delayed,
                                             Precision::fp8_block, Precision::fp8_block,
                                             Precision::fp16};
  for (const char* name : {"gpt2-124m", "gpt2-1.5b", "llama-1b", "llama-8b", "llama3-70b"}) {
    for (const int64_t batch : {8, 64}) {
      for (int i = 0; i < 25; ++i) {
        Job job = job_of(name, batch, dice.of<int64_t>({1024, 4096}));
        job.backend = any_backend(dice);
        expect_exact(job, with_types(dice, any_pipeline(dice, job, precisions)));
      }
    }
  }
  // All blocks in bf16, but with buckets of matrices apart.
  Layout l = layout_from_text("fp8-block bf16-first=16", 1);
  expect_exact(job_of("llama-1b", 8, 1024), l);
}

// With one micro-batch per rank, gradients are stored where activations were.
TEST(EngineMemory, is_exact_for_gradients_in_the_stash) {
  constexpr uint64_t seed = 8;
  SCOPED_TRACE(seed);
  Dice dice(seed);
  for (const char* name : {"gpt2-1.5b", "llama-1b", "llama-8b"}) {
    for (int i = 0; i < 40; ++i) {
      Layout l;
      const int ranks = dice.of<int>({1, 8});
      spec::set_data_ranks(l, ranks, ranks > 1 ? dice.of<int>({0, 1, 2}) : 0);
      l.recompute = static_cast<spec::Recompute>(dice.below(3));
      l.micro_batch = dice.of<int64_t>({1, 4});
      l.precision = dice.of<Precision>(
          {Precision::fp32, Precision::bf16, Precision::fp8, Precision::fp8_block});
      Job job = job_of(name, l.micro_batch * l.data_ranks(), 1024);
      job.backend = any_backend(dice);
      // Not all widths are multiples of 128.
      if (!missing_in_engine(job, l).empty()) l.precision = Precision::fp8;
      expect_exact(job, with_types(dice, l));
    }
  }
}

// The head's rank stages gradients of a tied table until the first stage is ready for them: those
// of at most one group of micro-batches, if the step has only one group.
TEST(EngineMemory, is_exact_for_tied_tables_of_interleaved_stages) {
  for (const int64_t batch : {4, 8, 16, 64}) {
    const Job job = job_of("gpt2-124m", 2 * batch, 128);
    expect_exact(job, layout_from_text("pp=4 interleaved=3 dp=2 zero=2", 8));
    expect_exact(job, layout_from_text("pp=4 dp=2 zero=3", 8));
  }
}

TEST(EngineMemory, is_exact_for_long_pipelines) {
  const Job job = job_of("llama3-70b", 200, 1024);
  for (const char* text : {"pp=48 zb-h1 full", "pp=64 zb-h2 full", "pp=40 zb-v", "pp=64"}) {
    Layout l = layout_from_text(text, 1920);
    l.dp_replicate = 1;
    expect_exact(job, l);
  }
}

// Small models with experts: in all blocks, with shared experts, behind dense blocks, and in every
// second block.
std::vector<Job> jobs_with_experts() {
  const Job dense = job_of("llama-15m", 64, 256);
  std::vector<Job> jobs = {with_experts(dense, 8, 2, 128), with_experts(dense, 16, 4, 96, 192),
                           with_experts(dense, 8, 2, 128, 64, 2)};
  Job mixed = jobs.front();
  for (size_t i = 1; i + 1 < mixed.model.layers.size(); i += 2) {
    mixed.model.layers[i] = dense.model.layers[i];
  }
  jobs.push_back(mixed);
  jobs.push_back(jobs.front());
  for (spec::LayerSpec& layer : jobs.back().model.layers) {
    if (auto* block = std::get_if<spec::BlockSpec>(&layer)) {
      block->moe->balance = {.aux = 0.01F, .scope = spec::AuxScope::global};
      block->moe->router.has_bias = true;
    }
  }
  return jobs;
}

Layout any_expert_layout(Dice& dice, const Job& job, const std::vector<Precision>& precisions) {
  while (true) {
    Layout l = any_layout(dice);
    l.precision = dice.of(precisions);
    if (spec::is_fp8(l.precision)) l.bf16_first = dice.of<int>({0, 1});
    l.sequence_parallel = l.tp > 1;
    l.ep = dice.of<int>({1, 2, 4, 8});
    l.etp = dice.of<int>({1, 1, 1, 2});
    l.row_budget = dice.of<double>({1, 1.25, 1.5, 2});
    l.expert_capacity = dice.of<double>({0, 0, 1.5});
    if (l.zero_stage > 0 && l.dp_shard >= 4 && dice.below(3) == 0) {
      l.dp_shard /= 2;
      l.dp_replicate = 2;
    }
    const bool is_whole = l.schedule != Kind::interleaved || micro_batches(job, l) % l.pp == 0;
    if (is_whole && missing_in_engine(job, l).empty()) return l;
  }
}

TEST(EngineMemory, is_exact_for_models_with_experts) {
  constexpr uint64_t seed = 12;
  SCOPED_TRACE(seed);
  Dice dice(seed);
  for (Job job : jobs_with_experts()) {
    for (int i = 0; i < 120; ++i) {
      job.backend = any_backend(dice);
      expect_exact(
          job, with_types(dice, any_expert_layout(dice, job, {Precision::fp32, Precision::bf16})));
    }
  }
}

// Models in which all blocks have experts; others have more than two kinds of blocks.
TEST(EngineMemory, is_exact_for_experts_in_8_bits) {
  constexpr uint64_t seed = 13;
  SCOPED_TRACE(seed);
  Dice dice(seed);
  for (Job job : jobs_with_experts()) {
    if (dense_block(job.model) != nullptr) continue;
    for (int i = 0; i < 40; ++i) {
      job.backend = any_backend(dice);
      const Layout l = any_expert_layout(
          dice, job, {Precision::fp8, Precision::fp8_block, Precision::fp8_delayed});
      expect_exact(job, with_types(dice, l));
    }
  }
}

TEST(EngineMemory, deterministic_attention_needs_more_memory) {
  Job job = job_of("llama-8b", 8, 4096);
  const spec::Machine machine = shipped_machine("h100");
  const auto working = [&](bool deterministic) {
    job.backend = spec::cuda_backend(deterministic);
    return Pricer(job, machine, trireme_stack()).price({}).at(Item::working);
  };
  EXPECT_GT(working(true), working(false));
}

}  // namespace
}  // namespace trireme::plan
