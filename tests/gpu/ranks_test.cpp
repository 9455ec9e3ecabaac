// SPDX-License-Identifier: Apache-2.0
// Ranks as threads that share one GPU: data parallel, ZeRO-1, -2, -3 and HSDP give the bits of one
// rank on that GPU, and use the predicted memory and traffic (train_layout()).
#include "tests/ranks/near_rig.h"

#include "base/error.h"
#include "comm/world/rank_test.h"
#include "tests/gpu/gpu_rig.h"

namespace trireme::tests {
namespace {

using RanksTest = GpuTest;

struct Ranks {
  int dp, zero, stage;
};

void expect_same_bits(Layout layout, const std::vector<Ranks>& all) {
  constexpr int steps = 3;
  layout.on_gpu = true;
  Layout one = layout;
  one.dp = one.zero = 1;
  one.stage = 0;
  const std::string hash = train_layout(one, steps);
  for (const Ranks& ranks : all) {
    layout.dp = ranks.dp;
    layout.zero = ranks.zero;
    layout.stage = ranks.stage;
    EXPECT_EQ(train_layout(layout, steps), hash) << to_string(layout);
    if (testing::Test::HasFailure()) return;  // the others would fail alike
  }
}

const std::vector<Ranks> all_ranks = {{2, 1, 0}, {1, 2, 1}, {1, 2, 2}, {1, 2, 3},
                                      {4, 1, 0}, {1, 4, 3}, {2, 2, 1}, {2, 2, 3}};

TEST_F(RanksTest, fp32_layouts_give_the_bits_of_one_rank) {
  for (const spec::ModelDims& dims : {tiny_gpt2(), tiny_llama()}) {
    expect_same_bits({.dims = dims, .logical_dp = 4}, all_ranks);
  }
}

TEST_F(RanksTest, bf16_layouts_give_the_bits_of_one_rank) {
  expect_same_bits({.dims = tiny_qwen3(), .recipe = "bf16", .logical_dp = 4}, all_ranks);
}

// Heads of 64: attention by cuDNN, and products whose algorithms are measured.
TEST_F(RanksTest, a_medium_model_gives_the_bits_of_one_rank) {
  for (const char* recipe : {"fp32", "bf16"}) {
    expect_same_bits({.dims = medium_llama(), .recipe = recipe, .logical_dp = 4},
                     {{2, 1, 0}, {1, 4, 3}, {2, 2, 2}});
  }
}

TEST_F(RanksTest, accumulation_recompute_and_prefetch) {
  Layout layout{.dims = tiny_llama(),
                .recipe = "bf16",
                .logical_dp = 4,
                .microbatches = 2,
                .reduce = spec::ReduceWhen::each,
                .recompute = spec::Recompute::selective};
  expect_same_bits(layout, {{2, 1, 0}, {1, 2, 2}, {1, 4, 3}});
  layout.prefetch_after = true;
  layout.prefetch = 2;
  expect_same_bits(layout, {{1, 4, 3}});
  layout.reduce_dtype = base::DType::bf16;
  expect_same_bits(layout, {{1, 2, 1}, {2, 2, 3}});
}

// Stages on ranks that share the GPU: messages between streams give the bits of one rank.
TEST_F(RanksTest, pipelines_give_the_bits_of_one_rank) {
  struct Shape {
    const char* schedule;
    int pp, chunks, microbatches;
  };
  for (spec::ModelDims dims : {tiny_gpt2(), medium_llama()}) {
    dims.layers = 6;
    dims.name += "-of-six-blocks";
    for (const Shape& shape :
         {Shape{"gpipe", 2, 0, 3}, Shape{"1f1b", 4, 0, 5}, Shape{"interleaved", 2, 2, 4},
          Shape{"zb-h1", 2, 0, 4}, Shape{"zb-h2", 2, 0, 5}, Shape{"zb-v", 2, 0, 5},
          Shape{"dualpipev", 2, 0, 5}}) {
      Layout layout{.dims = dims,
                    .recipe = "bf16",
                    .logical_dp = 2,
                    .microbatches = shape.microbatches,
                    .recompute = spec::Recompute::selective,
                    .on_gpu = true};
      layout.reduce = spec::ReduceWhen::once;
      const std::string hash = train_layout(layout, 3);
      layout.pp = shape.pp;
      layout.schedule = shape.schedule;
      layout.chunks = shape.chunks;
      layout.dp = 2;
      EXPECT_EQ(train_layout(layout, 3), hash) << to_string(layout);
      layout.dp = 1;
      layout.zero = 2;
      layout.stage = 1;
      EXPECT_EQ(train_layout(layout, 3), hash) << to_string(layout);
      if (testing::Test::HasFailure()) return;  // the others would fail alike
    }
    Layout sharded{.dims = dims,
                   .recipe = "bf16",
                   .logical_dp = 2,
                   .microbatches = 3,
                   .reduce = spec::ReduceWhen::each,
                   .on_gpu = true};
    const std::string hash = train_layout(sharded, 3);
    sharded.pp = 2;
    sharded.zero = 2;
    sharded.stage = 3;
    for (const bool keep_params : {false, true}) {
      sharded.keep_params = keep_params;
      EXPECT_EQ(train_layout(sharded, 3), hash) << to_string(sharded);
    }
  }
}

// The order of sums changes with tp.
TEST_F(RanksTest, tensor_and_sequence_parallel_are_close_to_one_rank) {
  spec::ModelDims gpt2 = tiny_gpt2();
  gpt2.name += "-of-two-heads";
  gpt2.heads = 2;
  for (const bool sequence_parallel : {false, true}) {
    for (const spec::ModelDims& dims : {gpt2, tiny_qwen3(), medium_llama()}) {
      Layout layout{.dims = dims, .tp = 2, .logical_dp = 2, .on_gpu = true};
      layout.sequence_parallel = sequence_parallel;
      expect_near_one_rank(layout, 1e-5);
      layout.zero = 2;
      layout.stage = 3;
      expect_near_one_rank(layout, 1e-5);
      layout.recipe = "bf16";
      expect_near_one_rank(layout, 3e-2);
    }
  }
}

// The order of sums changes with cp; at equal cp data layouts have the same bits.
TEST_F(RanksTest, context_parallel_is_close_to_one_rank) {
  using spec::ContextKind;
  spec::ModelDims medium = medium_llama();
  medium.name += "-of-four-key-heads";
  medium.kv_heads = 4;
  for (const bool documents : {false, true}) {
    for (const auto& [cp, kind] : {std::pair{2, ContextKind::ulysses},
                                   {4, ContextKind::ulysses},
                                   {2, ContextKind::gather},
                                   {4, ContextKind::gather},
                                   {4, ContextKind::ring},
                                   {4, ContextKind::ulysses_gather}}) {
      Layout layout{.dims = medium, .logical_dp = 2, .on_gpu = true};
      layout.cp = cp;
      layout.context_kind = kind;
      layout.seq_len = 256;
      layout.documents = documents;
      expect_near_one_rank(layout, 1e-5);
      layout.zero = 2;
      layout.stage = 3;
      layout.recompute = spec::Recompute::full;
      expect_near_one_rank(layout, 1e-5);
      layout.recipe = "bf16";
      expect_near_one_rank(layout, 3e-2);
      if (testing::Test::HasFailure()) return;  // the others would fail alike
    }
  }
  Layout layout{.dims = medium, .cp = 2, .recipe = "bf16", .logical_dp = 4};
  layout.seq_len = 256;
  expect_same_bits(layout, {{2, 1, 0}, {1, 4, 3}, {2, 2, 2}});
}

// Both ranks send three messages before either receives: separate streams carry them, and the sent
// buffers are overwritten as soon as that is allowed.
TEST_F(RanksTest, messages_cross) {
  comm::ThreadWorld world(2, 60);
  comm::run_ranks(world, [&](int r) {
    comm::Rank rank(world, r, comm::Place::cuda());
    const auto out_stream = rank.device.make_side_stream("out");
    const auto in_stream = rank.device.make_side_stream("in");
    const auto values = [](int sender, int round) {
      return comm::random_values(1 << 18, static_cast<uint64_t>(10 * sender + round));
    };
    std::vector<device::Tensor> out, in;
    std::vector<std::unique_ptr<comm::Sent>> sent;
    const device::Tensor other = rank.make(comm::Values(1 << 18));
    for (int round = 0; round < 3; ++round) {
      out.push_back(rank.make(values(r, round)));
      in.push_back(rank.make(comm::Values(1 << 18)));
      sent.push_back(rank.group->start_send(*out_stream, out.back(), 1 - r));
    }
    for (const device::Tensor& tensor : in) rank.group->recv(*in_stream, tensor, 1 - r);
    for (size_t round = 0; round < 3; ++round) {
      sent[round]->wait(*rank.stream);
      rank.stream->copy_bytes(out[round], other);
    }
    rank.stream->wait(in_stream->record());
    for (int round = 0; round < 3; ++round) {
      EXPECT_EQ(rank.read(in[static_cast<size_t>(round)]), values(1 - r, round));
    }
    rank.group->barrier();
  });
  EXPECT_EQ(world.verdict(), "");
}

// If a rank fails while others have work queued on the GPU, all ranks end, and memory that others
// read is not released before.
TEST_F(RanksTest, a_rank_that_fails_ends_all) {
  for (int bad = 0; bad < 4; ++bad) {
    const Layout layout{
        .dims = tiny_llama(), .dp = 2, .zero = 2, .stage = 3, .logical_dp = 4, .on_gpu = true};
    try {
      run_layout(layout, [&](RankRig& rig) {
        for (int step = 0; step < 4; ++step) {
          if (step == 2 && rig.mesh.world().rank() == bad) throw base::IoError("the disk is full");
          rig.engine.step(rig.source, 1e-3);
          rig.next_step();
        }
        rig.engine.report();
      });
      FAIL() << "nothing was thrown";
    } catch (const base::IoError& error) {
      EXPECT_STREQ(error.what(), "the disk is full");
    }
  }
  // The GPU is still usable.
  train_layout({.dims = tiny_llama(), .dp = 2, .logical_dp = 2, .on_gpu = true}, 1);
}

TEST_F(RanksTest, random_layouts_use_the_predicted_memory_and_traffic) {
  train_random_layouts(32, 30, true);
}

}  // namespace
}  // namespace trireme::tests
