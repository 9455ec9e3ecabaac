// SPDX-License-Identifier: Apache-2.0
#include "train/verify/verify_scale.h"

#include <gtest/gtest.h>

#include <tuple>

#include "base/error.h"
#include "spec/context/context_parallel.h"
#include "spec/layout/rule_samples_test.h"
#include "train/verify/verify.h"

namespace trireme::train {
namespace {

const spec::ModelDims big_llama{.name = "big",
                                .layers = 32,
                                .hidden = 4096,
                                .heads = 32,
                                .kv_heads = 8,
                                .ffn = 14336,
                                .vocab = 128257,
                                .max_seq = 8192,
                                .tied_head = false,
                                .qk_norm = true};

// The plan only gives the size of the complete job; it is not checked against tp here.
ScaledJob scaled(const spec::ModelDims& dims, spec::Layout layout, int64_t seq_len,
                 const std::vector<int>& cut = {0}) {
  const spec::Workload work{.seq_len = seq_len};
  spec::Plan full;
  full.layout = spec::settle(spec::ModelSizes{}, work, 0, layout).layout;
  full.seq_len = seq_len;
  full.head_chunk_rows = 512;
  full.first_layer_of_stage = cut;
  return scale_down(dims, work, full, spec::cpu_backend(), 64);
}

TEST(VerifyScale, keeps_structure_and_drops_size) {
  const ScaledJob job = scaled(big_llama,
                               {.tp = 4,
                                .dp_replicate = 2,
                                .dp_shard = 4,
                                .micro_batch = 4,
                                .accumulation = 16,
                                .logical_dp = 16},
                               4096);
  EXPECT_EQ(job.layout.dp_replicate, 2);
  EXPECT_EQ(job.layout.dp_shard, 4);
  EXPECT_EQ(job.layout.logical_dp, 16);
  EXPECT_TRUE(job.notes.empty());
  EXPECT_EQ(job.dims.heads / job.dims.kv_heads, 4);
  EXPECT_EQ(job.dims.kv_heads % 4, 0);
  EXPECT_EQ(job.dims.ffn % 4, 0);
  EXPECT_EQ(job.dims.hidden % 4, 0);
  EXPECT_EQ(job.dims.vocab % 4, big_llama.vocab % 4);
  EXPECT_TRUE(job.dims.qk_norm);
  EXPECT_FALSE(job.dims.tied_head);
  EXPECT_EQ(job.work.seq_len % 4, 0);
  EXPECT_GT(job.dims.max_seq, job.work.seq_len);
  EXPECT_GT(job.layout.accumulation, 1);
  EXPECT_LT(job.layout.head_chunk_rows, job.layout.micro_batch * job.work.seq_len);
  EXPECT_LT(spec::parameter_count(spec::make_model(job.dims)), 200'000);
}

TEST(VerifyScale, every_rank_has_rows_of_a_vocabulary_that_does_not_divide) {
  for (const int tp : {2, 4, 8, 16}) {
    for (const int64_t vocab : {50257, 128256, 151936, 32001}) {
      spec::ModelDims dims = big_llama;
      dims.heads = dims.kv_heads = 16;
      dims.vocab = vocab;
      const ScaledJob job = scaled(dims, {.tp = tp}, 4096);
      const int64_t rows = (job.dims.vocab + tp - 1) / tp;
      EXPECT_LT((tp - 1) * rows, job.dims.vocab) << "tp " << tp << ", vocabulary " << vocab;
      EXPECT_EQ(job.dims.vocab % tp, vocab % tp);
    }
  }
}

TEST(VerifyScale, leaves_a_small_model_as_it_is) {
  spec::ModelDims dims = big_llama;
  dims.layers = 2;
  dims.hidden = 24;
  dims.heads = 4;
  dims.kv_heads = 2;
  dims.head_dim = 8;
  dims.ffn = 20;
  dims.vocab = 47;
  dims.max_seq = 8;
  const ScaledJob job = scaled(dims, {.dp_replicate = 2}, 8);
  EXPECT_EQ(job.dims.hidden, 24);
  EXPECT_EQ(job.dims.heads, 4);
  EXPECT_EQ(job.dims.ffn, 20);
  EXPECT_EQ(job.dims.vocab, 47);
  EXPECT_EQ(job.dims.max_seq, 8);
}

TEST(VerifyScale, says_when_data_axes_do_not_fit_one_process) {
  const ScaledJob job =
      scaled(big_llama, {.tp = 8, .dp_replicate = 32, .dp_shard = 8, .logical_dp = 512}, 4096);
  EXPECT_EQ(job.layout.dp_replicate, 2);
  EXPECT_EQ(job.layout.dp_shard, 2);
  EXPECT_EQ(job.layout.logical_dp, 8);
  ASSERT_EQ(job.notes.size(), 2U);
  EXPECT_NE(job.notes[0].find("dp = 32 runs as 2"), std::string::npos) << job.notes[0];
  EXPECT_THROW(scaled(big_llama, {.tp = 128}, 4096), base::ConfigError);
}

TEST(VerifyScale, keeps_stages_schedule_and_the_rest_of_micro_batches) {
  const ScaledJob job =
      scaled(big_llama,
             {.pp = 4,
              .dp_replicate = 2,
              .schedule = schedule::Kind::interleaved,
              .chunks = 2,
              .micro_batch = 4,
              .accumulation = 63},
             4096, {0, 1, 3, 9, 15, 21, 27, 33});  // the embedding alone, the head alone
  EXPECT_EQ(job.layout.pp, 4);
  EXPECT_EQ(job.layout.chunks, 2);
  EXPECT_EQ(job.layout.first_layers, (std::vector<int>{0, 1, 3, 5, 7, 9, 11, 13}));
  EXPECT_EQ(job.dims.layers, 12);
  EXPECT_EQ(job.layout.accumulation % 4, 63 % 4);
  EXPECT_GE(job.layout.accumulation, 8);
  EXPECT_LT(job.layout.accumulation, 12);
  EXPECT_THROW(scaled(big_llama, {.tp = 16, .pp = 8}, 4096), base::ConfigError);
}

TEST(VerifyScale, keeps_context_parallelism) {
  using Kind = spec::ContextKind;
  using Slices = spec::ContextSlices;
  for (const auto& [kind, slices, cp, ulysses, tp] :
       {std::tuple{Kind::gather, Slices::zigzag, 16, 1, 2},
        std::tuple{Kind::ring, Slices::striped, 16, 1, 4},
        std::tuple{Kind::ulysses, Slices::contiguous, 4, 4, 2},
        std::tuple{Kind::ulysses_gather, Slices::blocks, 8, 4, 2},
        std::tuple{Kind::ulysses_ring, Slices::zigzag, 8, 2, 4}}) {
    const ScaledJob job = scaled(big_llama,
                                 {.tp = tp,
                                  .cp = cp,
                                  .sequence_parallel = true,
                                  .context_kind = kind,
                                  .context_slices = slices,
                                  .ulysses = ulysses},
                                 8192);
    SCOPED_TRACE(spec::name_of(kind));
    EXPECT_EQ(job.layout.cp, cp);
    EXPECT_EQ(job.layout.context_kind, kind);
    EXPECT_EQ(job.layout.context_slices, slices);
    EXPECT_EQ(job.layout.ulysses, ulysses);
    EXPECT_LE(job.work.seq_len, 256);
    // Still legal, with more than one row in a chunk.
    EXPECT_GE(job.work.seq_len, 2 * spec::context_unit(slices, cp));
    const spec::ModelSpec model = spec::make_model(job.dims);
    const spec::Settled settled = spec::settle(spec::sizes_of(model), job.work, 0, job.layout);
    EXPECT_TRUE(settled.broken.empty()) << settled.broken.front().text;
    EXPECT_EQ(job.dims.heads / job.dims.kv_heads, 4);
    if (spec::has_gather(kind)) {  // the third gather reuses the memory of the first
      EXPECT_GE(job.dims.kv_heads / tp / ulysses, std::min<int64_t>(3, 8 / tp / ulysses));
    }
  }
  EXPECT_THROW(scaled(big_llama, {.tp = 8, .cp = 16}, 8192), base::ConfigError);
}

// DeepSeek-V3's kind: groups, shared experts and dense blocks.
spec::ModelDims big_experts() {
  spec::ModelDims dims = big_llama;
  dims.dense_layers = 3;
  dims.moe = {.router = {.experts = 256,
                         .chosen = 8,
                         .score = spec::RouterScore::sigmoid,
                         .renormalizes = true,
                         .groups = 8,
                         .chosen_groups = 4,
                         .has_bias = true},
              .ffn = 2048,
              .shared_ffn = 2048,
              .balance = {.aux = 1e-4F, .scope = spec::AuxScope::sequence, .bias_rate = 1e-3F}};
  return dims;
}

TEST(VerifyScale, keeps_experts) {
  for (const auto& [tp, dp, ep, etp] : {std::tuple{1, 1, 1, 1}, std::tuple{1, 8, 8, 1},
                                        std::tuple{2, 16, 32, 1}, std::tuple{4, 4, 2, 4}}) {
    const ScaledJob job = scaled(
        big_experts(),
        {.tp = tp, .dp_replicate = dp, .ep = ep, .etp = etp, .sequence_parallel = tp > 1}, 4096);
    const spec::MoeSpec& moe = *job.dims.moe;
    EXPECT_EQ(job.layout.ep, ep);
    EXPECT_EQ(job.layout.etp, etp);
    EXPECT_GE(moe.router.experts / ep, 2);
    EXPECT_LE(moe.router.experts, std::max(16, 2 * ep));
    EXPECT_GT(moe.router.experts, moe.router.chosen);
    EXPECT_EQ(moe.router.groups, 4);
    EXPECT_EQ(moe.router.chosen_groups, 2);
    EXPECT_EQ(moe.shared_ffn % tp, 0);
    EXPECT_EQ(moe.ffn % etp, 0);
    EXPECT_EQ(job.dims.dense_layers, 1);
    EXPECT_GE(spec::expert_blocks(job.dims), 2);
    EXPECT_EQ(moe.balance, big_experts().moe->balance);
    const spec::ModelSpec model = spec::make_model(job.dims);
    const spec::Settled settled = spec::settle(spec::sizes_of(model), job.work, 0, job.layout);
    EXPECT_TRUE(settled.broken.empty()) << settled.broken.front().text;
    EXPECT_EQ(job.notes.size(), ep * etp > 1 ? 1U : 0U);  // the row budget
  }
  // One expert a rank, and all experts for every token.
  spec::ModelDims dims = big_experts();
  dims.moe->router = {.experts = 16, .chosen = 2};
  EXPECT_EQ(scaled(dims, {.dp_replicate = 16, .ep = 16}, 64).dims.moe->router.experts, 16);
  dims.moe->router.chosen = 16;
  const spec::RouterSpec all = scaled(dims, {.dp_replicate = 2, .ep = 2}, 64).dims.moe->router;
  EXPECT_EQ(all.chosen, all.experts);
  EXPECT_LT(all.experts, 16);
}

// One rank would drop other pairs, or compare them with those of other micro-batches.
TEST(VerifyScale, notes_what_one_rank_cannot_do) {
  spec::ModelDims dims = big_experts();
  dims.moe->balance.scope = spec::AuxScope::global;
  const ScaledJob job =
      scaled(dims, {.cp = 2, .dp_replicate = 4, .ep = 8, .expert_capacity = 1.25}, 4096);
  EXPECT_EQ(job.layout.expert_capacity, 0);
  EXPECT_EQ(job.dims.moe->balance.scope, spec::AuxScope::micro_batch);
  EXPECT_EQ(job.notes.size(), 3U);
  const ScaledJob data_only =
      scaled(big_experts(), {.dp_replicate = 4, .ep = 4, .expert_capacity = 1.25}, 4096);
  EXPECT_EQ(data_only.layout.expert_capacity, 1.25);
}

TEST(Verify, refuses_a_job_that_is_not_legal) {
  VerifyJob job;
  job.dims = big_llama;
  job.work = {.seq_len = 9000};
  job.layout = {.dp_replicate = 2, .logical_dp = 3, .precision = spec::Precision::fp32};
  job.system.device = "cpu";
  try {
    verify(job);
    FAIL() << "it was taken";
  } catch (const base::ConfigError& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find("seq_len = 9000"), std::string::npos) << text;
    EXPECT_NE(text.find("logical_dp = 3"), std::string::npos) << text;
  }
}

TEST(Verify, names_the_rule_that_a_layout_breaks) {
  for (const spec::BrokenSample& sample : spec::broken_samples()) {
    // Ranks are as many as the layout has.
    if (sample.ranks != 0 || sample.id == "cp.seq_len") continue;
    VerifyJob job;
    job.dims = spec::sample_dims(sample);
    if (sample.experts > 0) {
      job.dims.moe = {.router = {.experts = sample.experts, .chosen = 2},
                      .ffn = spec::sample_expert_ffn};
    }
    job.work = sample.work;
    job.layout = sample.asked;
    job.system.device = "cpu";
    try {
      verify(job);
      ADD_FAILURE() << sample.id << ": it was taken";
    } catch (const base::ConfigError& error) {
      EXPECT_NE(std::string(error.what()).find("[" + sample.id + "]"), std::string::npos)
          << sample.id << ": " << error.what();
    }
  }
}

}  // namespace
}  // namespace trireme::train
