// SPDX-License-Identifier: Apache-2.0
// Context parallelism against one rank: every kind, with and without documents, alone and with the
// other axes. Under Ulysses attention has the bits of one rank, otherwise the order of sums changes
// with cp; at equal cp every data layout gives the same bits. On every rank memory and bytes are
// the predicted ones (ranks_rig.h).
#include <gtest/gtest.h>

#include <tuple>
#include <utility>

#include "tests/ranks/near_rig.h"

namespace trireme::tests {
namespace {

using spec::ContextKind;
using spec::ContextSlices;
using spec::Recompute;
using spec::ReduceWhen;

constexpr double context_bound = 1e-5, context_loss_bound = 1e-6;

// 8 query heads; as many key/value heads as asked.
spec::ModelDims with_heads(spec::ModelDims dims, int64_t kv_heads) {
  dims.name += "-context-" + std::to_string(kv_heads);
  dims.hidden = 32;
  dims.heads = 8;
  dims.head_dim = 4;
  dims.kv_heads = kv_heads;
  dims.ffn = 48;
  dims.vocab = 61;
  dims.max_seq = 64;
  return dims;
}
spec::ModelDims heads_gpt2() { return with_heads(tiny_gpt2(), 8); }  // tied head, biases
spec::ModelDims heads_llama(int64_t kv_heads) { return with_heads(tiny_llama(), kv_heads); }
spec::ModelDims heads_qwen3(int64_t kv_heads) { return with_heads(tiny_qwen3(), kv_heads); }

struct Context {
  int cp;
  ContextKind kind;
  ContextSlices slices = ContextSlices::zigzag;
  int ulysses = 0;
};

void set(Layout& layout, const Context& context) {
  layout.cp = context.cp;
  layout.context_kind = context.kind;
  layout.context_slices = context.slices;
  layout.ulysses = context.ulysses;
}

const std::vector<Context> all_kinds = {
    {2, ContextKind::ulysses},
    {4, ContextKind::ulysses},
    {2, ContextKind::gather},
    {3, ContextKind::gather},
    {4, ContextKind::gather},
    {4, ContextKind::gather, ContextSlices::contiguous},
    {2, ContextKind::gather, ContextSlices::striped},
    {4, ContextKind::gather, ContextSlices::blocks},
    {2, ContextKind::ring},
    {3, ContextKind::ring},
    {4, ContextKind::ring, ContextSlices::contiguous},
    {4, ContextKind::ring, ContextSlices::striped},
    {4, ContextKind::ulysses_gather, ContextSlices::zigzag, 2},
    {4, ContextKind::ulysses_gather, ContextSlices::blocks, 2},
    {4, ContextKind::ulysses_ring, ContextSlices::zigzag, 2},
    {8, ContextKind::ulysses},
    {8, ContextKind::ulysses_ring, ContextSlices::striped, 4},
};

Layout context_layout(const spec::ModelDims& dims, bool documents) {
  return {.dims = dims, .logical_dp = 1, .seq_len = 48, .documents = documents};
}

TEST(ContextTest, every_kind_is_near_one_rank) {
  for (const bool documents : {false, true}) {
    for (const Context& context : all_kinds) {
      Layout layout = context_layout(heads_llama(8), documents);
      set(layout, context);
      expect_near_one_rank(layout, context_bound, context_loss_bound);
    }
  }
}

TEST(ContextTest, fewer_key_heads_than_ranks_and_more_sequences) {
  for (const int64_t kv_heads : {1, 2}) {
    for (const Context& context :
         {Context{4, ContextKind::ulysses}, Context{8, ContextKind::ulysses},
          Context{4, ContextKind::gather}, Context{4, ContextKind::ring},
          Context{8, ContextKind::ulysses_gather, ContextSlices::zigzag, 4}}) {
      Layout layout = context_layout(heads_qwen3(kv_heads), true);
      layout.sequences = 2;
      layout.seq_len = 32;
      set(layout, context);
      expect_near_one_rank(layout, context_bound, context_loss_bound);
    }
  }
}

// Degrees of the other axes.
struct Others {
  int dp, zero, stage, tp, pp;
};

TEST(ContextTest, with_every_other_axis) {
  const std::vector<Others> others = {{2, 1, 0, 1, 1}, {1, 2, 1, 1, 1}, {1, 1, 3, 1, 1},
                                      {1, 2, 3, 1, 1}, {2, 1, 2, 1, 1}, {1, 1, 0, 2, 1},
                                      {1, 1, 1, 2, 1}, {1, 1, 0, 1, 2}, {1, 1, 1, 1, 2}};
  for (const Context& context :
       {Context{2, ContextKind::ulysses}, Context{2, ContextKind::gather},
        Context{2, ContextKind::ring},
        Context{4, ContextKind::ulysses_gather, ContextSlices::zigzag, 2}}) {
    for (const Others& ranks : others) {
      Layout layout = context_layout(ranks.pp > 1 ? heads_gpt2() : heads_qwen3(4), true);
      set(layout, context);
      layout.dp = ranks.dp;
      layout.zero = ranks.zero;
      layout.stage = ranks.stage;
      layout.tp = ranks.tp;
      layout.sequence_parallel = ranks.tp > 1 && context.kind != ContextKind::ring;
      layout.pp = ranks.pp;
      layout.logical_dp = 2;
      layout.microbatches = 2;
      if (ranks.stage >= 2) layout.reduce = ReduceWhen::each;
      if (ranks.dp * ranks.zero == 1) layout.logical_dp = 1;
      expect_near_one_rank(layout, context_bound, context_loss_bound);
    }
  }
}

TEST(ContextTest, recompute_split_backward_and_worker_streams) {
  for (const Context& context : {Context{2, ContextKind::ulysses}, Context{2, ContextKind::gather},
                                 Context{3, ContextKind::ring},
                                 Context{4, ContextKind::ulysses_ring, ContextSlices::zigzag, 2}}) {
    Layout layout = context_layout(heads_qwen3(4), false);
    set(layout, context);
    for (const Recompute recompute : {Recompute::selective, Recompute::full}) {
      layout.recompute = recompute;
      expect_near_one_rank(layout, context_bound, context_loss_bound);
    }
    layout.dims = heads_gpt2();
    layout.recompute = Recompute::selective;
    layout.microbatches = 2;
    layout.split_backward = true;
    expect_near_one_rank(layout, context_bound, context_loss_bound);
    layout.split_backward = false;
    layout.streams = device::StreamMode::worker_threads;
    expect_near_one_rank(layout, context_bound, context_loss_bound);
  }
}

// bf16 rounds what ranks send, so the bound is that of bf16.
TEST(ContextTest, bf16) {
  for (const Context& context : {Context{4, ContextKind::ulysses}, Context{4, ContextKind::gather},
                                 Context{4, ContextKind::ring}}) {
    Layout layout = context_layout(heads_llama(4), true);
    layout.recipe = "bf16";
    set(layout, context);
    expect_near_one_rank(layout, 3e-2);
  }
}

TEST(ContextTest, data_layouts_give_the_same_bits_at_equal_cp) {
  for (const Context& context : {Context{2, ContextKind::ulysses}, Context{2, ContextKind::gather},
                                 Context{3, ContextKind::ring}}) {
    for (const char* recipe : {"fp32", "bf16"}) {
      Layout layout = context_layout(heads_qwen3(4), true);
      set(layout, context);
      layout.recipe = recipe;
      layout.logical_dp = 4;
      layout.seq_len = 12;
      const std::string hash = train_layout(layout, 4);
      for (const auto& [dp, zero, stage] : {std::tuple{2, 1, 0},
                                            {4, 1, 0},
                                            {1, 4, 1},
                                            {1, 1, 2},
                                            {1, 2, 2},
                                            {1, 4, 3},
                                            {2, 2, 3}}) {
        layout.dp = dp;
        layout.zero = zero;
        layout.stage = stage;
        EXPECT_EQ(train_layout(layout, 4), hash) << to_string(layout);
      }
    }
  }
}

}  // namespace
}  // namespace trireme::tests
