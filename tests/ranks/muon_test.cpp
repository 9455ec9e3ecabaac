// SPDX-License-Identifier: Apache-2.0
// Muon on several ranks: the bits of one rank for every layout of the data axes and of the
// pipeline, near one rank with tp, and memory and bytes sent as predicted (train_layout()).
#include <gtest/gtest.h>

#include <cmath>

#include "tests/ranks/ranks_rig.h"

namespace trireme::tests {
namespace {

constexpr int muon_steps = 5;

Layout muon_layout(const spec::ModelDims& dims) {
  Layout layout{.dims = dims, .logical_dp = 12};
  layout.optimizer = spec::OptimizerKind::muon;
  return layout;
}

TEST(MuonRanksTest, every_data_layout_has_the_bits_of_one_rank) {
  struct DataLayout {
    int dp, zero, stage;
  };
  for (const char* recipe : {"fp32", "bf16"}) {
    Layout layout = muon_layout(std::string(recipe) == "fp32" ? tiny_llama() : tiny_gpt2());
    layout.recipe = recipe;
    const std::string expected = train_layout(layout, muon_steps);
    for (const DataLayout& ranks : {DataLayout{2, 1, 0},
                                    {4, 1, 0},
                                    {1, 2, 1},
                                    {1, 3, 2},
                                    {1, 4, 3},
                                    {2, 2, 1},
                                    {2, 3, 3},
                                    {1, 12, 3}}) {
      layout.dp = ranks.dp;
      layout.zero = ranks.zero;
      layout.stage = ranks.stage;
      EXPECT_EQ(train_layout(layout, muon_steps), expected) << to_string(layout);
    }
  }
}

TEST(MuonRanksTest, split_masters_recompute_pipelines_and_workers_have_the_bits_of_one_rank) {
  Layout layout = muon_layout(tiny_qwen3());
  layout.recipe = "bf16";
  layout.microbatches = 2;
  layout.reduce = spec::ReduceWhen::each;
  const std::string expected = train_layout(layout, muon_steps);
  layout.zero = 2;
  layout.stage = 3;
  layout.recompute = spec::Recompute::full;
  layout.streams = device::StreamMode::worker_threads;
  EXPECT_EQ(train_layout(layout, muon_steps), expected);
  layout.recompute = spec::Recompute::selective;
  layout.stage = 1;
  layout.pp = 2;
  EXPECT_EQ(train_layout(layout, muon_steps), expected);
  layout.master = base::DType::u16;
  layout.pp = 1;
  EXPECT_EQ(train_layout(layout, muon_steps), expected) << "split masters";
}

TEST(MuonRanksTest, tensor_parallel_layouts_have_equal_bits_and_are_near_one_rank) {
  Layout layout = muon_layout(tiny_llama());
  const Results one = results_of(layout, muon_steps);
  layout.tp = 2;
  layout.sequence_parallel = true;
  const std::string two = train_layout(layout, muon_steps);
  const Results near = results_of(layout, muon_steps);
  for (const auto& [name, values] : one.weights) {
    const std::vector<float>& other = near.weights.at(name);
    double largest = 0, difference = 0;
    for (size_t i = 0; i < values.size(); ++i) {
      largest = std::max(largest, std::abs(static_cast<double>(values[i])));
      difference = std::max(
          difference, std::abs(static_cast<double>(values[i]) - static_cast<double>(other[i])));
    }
    // Gradients differ by roundings, 1e-6 of the largest; directions of small singular values
    // amplify that by up to 3.5^5, and a step moves by a thousandth.
    EXPECT_LT(difference, 2e-4 * largest) << name;
  }
  layout.zero = 2;
  for (const int stage : {1, 2, 3}) {
    layout.stage = stage;
    EXPECT_EQ(train_layout(layout, muon_steps), two) << to_string(layout);
  }
  layout.dp = 2;
  layout.zero = 1;
  layout.stage = 0;
  EXPECT_EQ(train_layout(layout, muon_steps), two) << to_string(layout);
}

// Ranks along cp share the matrices, and under ZeRO the state.
TEST(MuonRanksTest, context_parallel_layouts_have_equal_bits) {
  Layout layout = muon_layout(tiny_llama());
  layout.seq_len = 8;
  layout.cp = 2;
  const std::string expected = train_layout(layout, muon_steps);
  layout.stage = 1;
  EXPECT_EQ(train_layout(layout, muon_steps), expected) << to_string(layout);
  layout.zero = 2;
  layout.stage = 3;
  EXPECT_EQ(train_layout(layout, muon_steps), expected) << to_string(layout);
}

}  // namespace
}  // namespace trireme::tests
