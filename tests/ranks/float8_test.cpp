// SPDX-License-Identifier: Apache-2.0
// Dense blocks in 8 bits on several ranks: every data layout and pipeline has the bits of one rank,
// also with delayed scaling, whose histories are those of all ranks; near one rank with tensor
// parallelism. Memory and bytes are the predicted ones on every rank (ranks_rig.h).
#include <gtest/gtest.h>

#include <atomic>

#include "spec/state/float8_state.h"
#include "tests/ranks/near_rig.h"

namespace trireme::tests {
namespace {

Layout coded_layout(const std::string& recipe, spec::ModelDims dims) {
  dims.name += "-" + recipe;
  dims.layers = 4;
  dims.hidden = 64;
  dims.heads = dims.kv_heads = 4;
  dims.head_dim = 16;
  dims.ffn = 96;
  dims.max_seq = 32;
  return {.dims = dims,
          .recipe = recipe,
          .logical_dp = 4,
          .microbatches = 2,
          .sequences = 2,
          .seq_len = 16,
          .adam_eps = 1e-4F};
}

TEST(Float8RanksTest, data_layouts_and_pipelines_have_the_bits_of_one_rank) {
  constexpr int steps = 3;
  for (const char* recipe : {"fp8-tensor", "fp8-delayed"}) {
    Layout layout = coded_layout(recipe, tiny_llama());
    const std::string expected = train_layout(layout, steps);
    layout.dp = 4;
    EXPECT_EQ(train_layout(layout, steps), expected) << to_string(layout);
    layout.dp = 1;
    layout.zero = 2;
    layout.stage = 1;
    EXPECT_EQ(train_layout(layout, steps), expected) << to_string(layout);
    layout.zero = 1;
    layout.stage = 0;
    layout.pp = 2;
    EXPECT_EQ(train_layout(layout, steps), expected) << to_string(layout);
    layout = coded_layout(recipe, tiny_llama());
    layout.reduce = spec::ReduceWhen::each;
    const std::string each = train_layout(layout, steps);
    layout.dp = 2;
    layout.zero = 2;
    layout.stage = 3;
    layout.recompute = spec::Recompute::full;
    EXPECT_EQ(train_layout(layout, steps), each) << to_string(layout);
  }
}

TEST(Float8RanksTest, tensor_parallel_is_near_one_rank) {
  for (const char* recipe : {"fp8-tensor", "fp8-delayed"}) {
    for (const bool sequence_parallel : {false, true}) {
      Layout layout = coded_layout(recipe, sequence_parallel ? tiny_gpt2() : tiny_llama());
      layout.tp = 2;
      layout.sequence_parallel = sequence_parallel;
      expect_near_one_rank(layout, 0.25, 2e-3);
    }
  }
}

// All ranks with a block have its history, with the largest values of all tokens and heads.
TEST(Float8RanksTest, histories_are_those_of_all_ranks) {
  const auto histories = [](const Layout& layout) {
    std::vector<std::map<int, std::vector<float>>> all(static_cast<size_t>(ranks_of(layout)));
    std::atomic<size_t> next = 0;
    run_layout(layout, [&](RankRig& rig) {
      rig.engine.step(rig.source, 0);
      std::map<int, std::vector<float>>& found = all[next++];
      for (const engine::Engine::StateRange& range : rig.engine.state()) {
        if (range.tensor.name != spec::amax_history_state) continue;
        found[range.layer] = rig.engine.read_state(range);
      }
    });
    return all;
  };
  Layout layout = coded_layout("fp8-delayed", tiny_llama());
  const std::map<int, std::vector<float>> expected = histories(layout).front();
  ASSERT_EQ(expected.size(), 4U);
  layout.dp = 2;
  layout.zero = 2;
  layout.stage = 1;
  for (const auto& found : histories(layout)) EXPECT_EQ(found, expected);
  layout.dp = layout.zero = 1;
  layout.stage = 0;
  layout.tp = 2;
  for (const auto& found : histories(layout)) {
    for (const auto& [layer, values] : expected) {
      ASSERT_EQ(found.count(layer), 1U);
      const std::vector<float>& other = found.at(layer);
      // Sums along tp are rounded in another order; a code then differs by up to a quarter.
      for (size_t i = 0; i < values.size(); ++i) {
        EXPECT_NEAR(other[i], values[i], 0.25F * values[i]) << layer << " " << i;
      }
    }
  }
}

}  // namespace
}  // namespace trireme::tests
