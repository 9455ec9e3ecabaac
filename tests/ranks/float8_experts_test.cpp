// SPDX-License-Identifier: Apache-2.0
// Experts in 8 bits on several ranks. With one rank along ep, etp and tp every data layout has the
// bits of one rank. With several, scales of rows are those of what a rank receives, and results are
// those of one rank within what 8-bit numbers resolve. Memory and bytes are the predicted ones on
// every rank (ranks_rig.h).
#include <gtest/gtest.h>

#include <tuple>

#include "tests/ranks/near_rig.h"

namespace trireme::tests {
namespace {

Layout coded_experts(const std::string& recipe, spec::ModelDims dims) {
  const bool is_block = spec::recipe_from_name(recipe).fp8->grain() == spec::scale_block;
  dims.name += "-" + recipe;
  dims.hidden = is_block ? 128 : 64;
  dims.heads = dims.kv_heads = 4;
  dims.head_dim = dims.hidden / 4;
  if (dims.ffn > 0) dims.ffn = is_block ? 128 : 64;
  dims.moe->router.experts = 8;
  dims.moe->ffn = is_block ? 128 : 32;
  if (dims.moe->shared_ffn > 0) dims.moe->shared_ffn = is_block ? 128 : 32;
  dims.max_seq = is_block ? 256 : 32;
  return {.dims = dims,
          .recipe = recipe,
          .logical_dp = 4,
          .sequences = 2,
          .seq_len = is_block ? 64 : 16,
          .adam_eps = 1e-4F};
}

TEST(Float8ExpertsRanksTest, every_data_layout_has_the_bits_of_one_rank) {
  for (const char* recipe : {"fp8-tensor", "fp8-block", "fp8-delayed"}) {
    Layout layout = coded_experts(recipe, tiny_moe());
    const std::string expected = train_layout(layout, 2);
    for (const auto& [dp, zero, stage] :
         {std::tuple{2, 1, 0}, {1, 2, 1}, {1, 4, 2}, {1, 4, 3}, {2, 2, 3}}) {
      if (std::string(recipe) == "fp8-block" && stage < 3) continue;
      layout.dp = dp;
      layout.zero = zero;
      layout.stage = stage;
      EXPECT_EQ(train_layout(layout, 2), expected) << to_string(layout);
    }
  }
}

TEST(Float8ExpertsRanksTest, experts_on_several_ranks_are_near_one_rank) {
  for (const char* recipe : {"fp8-tensor", "fp8-block"}) {
    for (const auto& [dp, zero, stage, tp, ep, etp] : {std::tuple{2, 1, 0, 1, 2, 1},
                                                       {1, 4, 3, 1, 4, 1},
                                                       {1, 2, 1, 2, 2, 1},
                                                       {1, 1, 0, 2, 1, 2}}) {
      const bool is_block = std::string(recipe) == "fp8-block";
      if (is_block && (tp > 1 || ep < 4)) continue;  // sizes are multiples of 128
      Layout layout = coded_experts(recipe, tiny_shared_moe());
      layout.dp = dp;
      layout.zero = zero;
      layout.stage = stage;
      layout.tp = tp;
      layout.sequence_parallel = tp > 1;
      layout.ep = ep;
      layout.etp = etp;
      expect_near_one_rank(layout, 0.25, 2e-3);
    }
  }
}

}  // namespace
}  // namespace trireme::tests
