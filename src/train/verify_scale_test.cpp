// SPDX-License-Identifier: Apache-2.0
#include "train/verify_scale.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "train/verify.h"

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

// The plan only says how large the whole job is: what tp cuts is not asked of it here.
ScaledJob scaled(const spec::ModelDims& dims, spec::SplitOptions split,
                 const spec::OneRankOptions& one) {
  spec::Plan full;
  full.microbatch_sequences = one.microbatch_sequences;
  full.seq_len = one.seq_len;
  full.head_chunk_rows = 512;
  return scale_down(dims, one, split, full, spec::cpu_backend(), 64);
}

TEST(VerifyScale, keeps_structure_and_drops_size) {
  const spec::OneRankOptions one{.microbatch_sequences = 4, .seq_len = 4096, .microbatches = 16};
  const ScaledJob job = scaled(big_llama, {.dp = 2, .zero = 4, .tp = 4, .logical_dp = 16}, one);
  EXPECT_EQ(job.split.dp, 2);
  EXPECT_EQ(job.split.zero, 4);
  EXPECT_EQ(job.split.logical_dp, 16);
  EXPECT_TRUE(job.notes.empty());
  EXPECT_EQ(job.dims.heads / job.dims.kv_heads, 4);
  EXPECT_EQ(job.dims.kv_heads % 4, 0);
  EXPECT_EQ(job.dims.ffn % 4, 0);
  EXPECT_EQ(job.dims.hidden % 4, 0);
  EXPECT_EQ(job.dims.vocab % 4, big_llama.vocab % 4);
  EXPECT_TRUE(job.dims.qk_norm);
  EXPECT_FALSE(job.dims.tied_head);
  EXPECT_EQ(job.one_rank.seq_len % 4, 0);
  EXPECT_GT(job.dims.max_seq, job.one_rank.seq_len);
  EXPECT_GT(job.one_rank.microbatches, 1);
  EXPECT_LT(job.one_rank.head_chunk_rows, job.one_rank.microbatch_sequences * job.one_rank.seq_len);
  EXPECT_LT(spec::parameter_count(spec::make_model(job.dims)), 200'000);
}

TEST(VerifyScale, every_rank_has_rows_of_a_vocabulary_that_does_not_divide) {
  for (const int tp : {2, 4, 8, 16}) {
    for (const int64_t vocab : {50257, 128256, 151936, 32001}) {
      spec::ModelDims dims = big_llama;
      dims.heads = dims.kv_heads = 16;
      dims.vocab = vocab;
      const ScaledJob job = scaled(dims, {.tp = tp}, {.seq_len = 4096});
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
  const ScaledJob job = scaled(dims, {.dp = 2}, {.seq_len = 8});
  EXPECT_EQ(job.dims.hidden, 24);
  EXPECT_EQ(job.dims.heads, 4);
  EXPECT_EQ(job.dims.ffn, 20);
  EXPECT_EQ(job.dims.vocab, 47);
  EXPECT_EQ(job.dims.max_seq, 8);
}

TEST(VerifyScale, says_when_data_axes_do_not_fit_one_process) {
  const spec::OneRankOptions one{.seq_len = 4096};
  const ScaledJob job = scaled(big_llama, {.dp = 32, .zero = 8, .tp = 8, .logical_dp = 512}, one);
  EXPECT_EQ(job.split.dp, 2);
  EXPECT_EQ(job.split.zero, 2);
  EXPECT_EQ(job.split.logical_dp, 8);
  ASSERT_EQ(job.notes.size(), 2U);
  EXPECT_NE(job.notes[0].find("dp = 32 runs as 2"), std::string::npos) << job.notes[0];
  EXPECT_THROW(scaled(big_llama, {.tp = 128}, one), base::ConfigError);
}

TEST(VerifyScale, keeps_stages_schedule_and_the_rest_of_micro_batches) {
  const spec::SplitOptions split{.dp = 2, .pp = 4, .schedule = "interleaved", .chunks = 2};
  spec::Plan full;
  full.microbatch_sequences = 4;
  full.seq_len = 4096;
  full.head_chunk_rows = 512;
  full.first_layer_of_stage = {0, 1, 3, 9, 15, 21, 27, 33};  // the embedding alone, the head alone
  const spec::OneRankOptions one{.microbatch_sequences = 4, .seq_len = 4096, .microbatches = 63};
  const ScaledJob job = scale_down(big_llama, one, split, full, spec::cpu_backend(), 64);
  EXPECT_EQ(job.split.pp, 4);
  EXPECT_EQ(job.split.chunks, 2);
  EXPECT_EQ(job.split.first_layer_of_stage, (std::vector<int>{0, 1, 3, 5, 7, 9, 11, 13}));
  EXPECT_EQ(job.dims.layers, 12);
  EXPECT_EQ(job.one_rank.microbatches % 4, 63 % 4);
  EXPECT_GE(job.one_rank.microbatches, 8);
  EXPECT_LT(job.one_rank.microbatches, 12);
  EXPECT_THROW(scaled(big_llama, {.tp = 16, .pp = 8}, one), base::ConfigError);
}

TEST(Verify, refuses_a_job_that_is_not_legal) {
  VerifyJob job;
  job.dims = big_llama;
  job.one_rank = {.seq_len = 9000, .recipe = spec::recipe_from_name("fp32")};
  job.split = {.dp = 2, .logical_dp = 3};
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

}  // namespace
}  // namespace trireme::train
