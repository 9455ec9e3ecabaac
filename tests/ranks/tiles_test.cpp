// SPDX-License-Identifier: Apache-2.0
// The feed-forward in tiles of rows against one rank without tiles: the order in which rows are
// summed differs, so results agree within a bound. At equal tiles every data layout and schedule
// gives the same bits. On every rank memory and bytes are the predicted ones (ranks_rig.h).
#include <gtest/gtest.h>

#include <tuple>

#include "tests/ranks/near_rig.h"

namespace trireme::tests {
namespace {

using spec::Recompute;
using spec::ReduceWhen;

// Sums of fp32 in another order, on one rank and on several.
constexpr double tile_bound = 1e-6, rank_bound = 1e-5;

spec::ModelDims tiled(spec::ModelDims dims) {
  dims.name += "-tiled";
  dims.hidden = 32;
  dims.heads = 8;
  dims.head_dim = 4;
  dims.kv_heads = dims.family == spec::Family::gpt2 ? 8 : 4;
  dims.ffn = 48;
  dims.vocab = 61;
  dims.max_seq = 32;
  return dims;
}
spec::ModelDims tiled_gpt2() { return tiled(tiny_gpt2()); }    // GELU, biases
spec::ModelDims tiled_llama() { return tiled(tiny_llama()); }  // SwiGLU

Layout tiled_layout(const spec::ModelDims& dims, int64_t ffn_rows) {
  return {.dims = dims, .logical_dp = 1, .sequences = 2, .seq_len = 12, .ffn_rows = ffn_rows};
}

TEST(TilesTest, one_rank) {
  for (const spec::ModelDims& dims : {tiled_gpt2(), tiled_llama()}) {
    for (const int64_t ffn_rows : {1, 5, 8, 24, 1000}) {
      for (const Recompute recompute : {Recompute::none, Recompute::selective, Recompute::full}) {
        Layout layout = tiled_layout(dims, ffn_rows);
        layout.recompute = recompute;
        expect_near_one_rank(layout, tile_bound);
      }
    }
  }
}

// Tiles of 3 rows are fewer than 4 ranks, and leave ranks without a part of the residual.
TEST(TilesTest, along_tp) {
  for (const spec::ModelDims& dims : {tiled_gpt2(), tiled_llama()}) {
    for (const auto& [tp, ffn_rows, sequence_parallel] :
         {std::tuple{2, 5, false}, {2, 5, true}, {4, 3, false}, {4, 9, true}}) {
      for (const Recompute recompute : {Recompute::none, Recompute::full}) {
        Layout layout = tiled_layout(dims, ffn_rows);
        layout.tp = tp;
        layout.sequence_parallel = sequence_parallel;
        layout.recompute = recompute;
        expect_near_one_rank(layout, rank_bound);
      }
    }
  }
}

TEST(TilesTest, along_cp) {
  for (const spec::ContextKind kind :
       {spec::ContextKind::ulysses, spec::ContextKind::gather, spec::ContextKind::ring}) {
    for (const Recompute recompute : {Recompute::none, Recompute::selective, Recompute::full}) {
      Layout layout = tiled_layout(tiled_llama(), 5);
      layout.cp = 2;
      layout.context_kind = kind;
      layout.recompute = recompute;
      layout.stage = recompute == Recompute::full ? 3 : 0;
      layout.tp = recompute == Recompute::selective ? 2 : 1;
      layout.sequence_parallel = layout.tp > 1;
      expect_near_one_rank(layout, rank_bound);
    }
  }
}

TEST(TilesTest, data_layouts_give_the_same_bits_at_equal_tiles) {
  for (const char* recipe : {"fp32", "bf16"}) {
    Layout layout = tiled_layout(tiled_llama(), 5);
    layout.recipe = recipe;
    layout.logical_dp = 4;
    layout.microbatches = 2;
    layout.reduce = ReduceWhen::each;
    const std::string hash = train_layout(layout, 3);
    for (const auto& [dp, zero, stage] :
         {std::tuple{4, 1, 0}, {1, 4, 1}, {1, 2, 2}, {1, 4, 3}, {2, 2, 3}}) {
      layout.dp = dp;
      layout.zero = zero;
      layout.stage = stage;
      layout.recompute = static_cast<Recompute>(stage % 3);
      EXPECT_EQ(train_layout(layout, 3), hash) << to_string(layout);
    }
  }
}

// Zero-bubble schedules have B and W apart: the feed-forward's weight gradients are summed in B.
TEST(TilesTest, schedules_give_the_same_bits_at_equal_tiles) {
  for (const spec::ModelDims& dims : {tiled_gpt2(), tiled_llama()}) {
    Layout layout = tiled_layout(dims, 5);
    layout.dims.layers = 4;
    layout.dims.name += "-4";
    layout.microbatches = 4;
    const std::string hash = train_layout(layout, 3);
    layout.pp = 2;
    for (const char* schedule : {"1f1b", "zb-h1", "zb-v", "interleaved", "dualpipe-v"}) {
      layout.schedule = schedule;
      for (const Recompute recompute : {Recompute::none, Recompute::selective, Recompute::full}) {
        layout.recompute = recompute;
        EXPECT_EQ(train_layout(layout, 3), hash) << to_string(layout);
      }
    }
  }
}

}  // namespace
}  // namespace trireme::tests
