// SPDX-License-Identifier: Apache-2.0
#include "sim/model_costs.h"

#include <gtest/gtest.h>

namespace trireme::sim {
namespace {

Costs layers_of(const std::vector<double>& seconds) {
  Costs costs;
  for (const double s : seconds) {
    costs.seconds.push_back({.f = s, .b = 0, .w = 0, .bw = 0});
    costs.kept.push_back({.f_to_w = s});
    costs.output_bytes.push_back(s);
  }
  return costs;
}

TEST(ModelCostsTest, the_balanced_cut_has_the_shortest_longest_stage) {
  EXPECT_EQ(balanced_cut(layers_of({0, 1, 1, 1, 1, 2}), 3), (std::vector<int>{0, 3, 5}));
  EXPECT_EQ(balanced_cut(layers_of({1, 1, 1, 1}), 4), (std::vector<int>{0, 1, 2, 3}));
  EXPECT_EQ(balanced_cut(layers_of({1, 1, 1, 1}), 1), (std::vector<int>{0}));
  EXPECT_EQ(balanced_cut(layers_of({9, 1, 1, 1}), 3), (std::vector<int>{0, 1, 3}));
}

TEST(ModelCostsTest, stages_sum_their_layers) {
  const Costs stages = stage_costs(layers_of({0, 1, 2, 3}), {0, 2});
  EXPECT_EQ(stages.seconds[0].f, 1);
  EXPECT_EQ(stages.seconds[1].f, 5);
  EXPECT_EQ(stages.kept[1].f_to_w, 5);
  EXPECT_EQ(stages.output_bytes, (std::vector<double>{1, 3}));
}

TEST(ModelCostsTest, layers_take_their_flops_over_the_rate) {
  const spec::ModelSpec model = spec::make_model({.family = spec::Family::gpt2,
                                                  .layers = 2,
                                                  .hidden = 64,
                                                  .heads = 4,
                                                  .ffn = 256,
                                                  .vocab = 512,
                                                  .max_seq = 32});
  const ModelCostOptions options{
      .shape = {.tokens = 64, .sequences = 2, .seq_len = 32, .head_chunk_rows = 64},
      .recipe = spec::recipe_from_name("fp32"),
      .backend = spec::cpu_backend(),
      .flops_per_second = 1};
  const Costs layers = layer_costs(model, options);
  ASSERT_EQ(layers.seconds.size(), 4U);
  EXPECT_EQ(layers.seconds[0].f, 0);
  EXPECT_EQ(layers.seconds[1].w, 24.0 * 64 * 64 * 64);  // 2 * 12 width^2 for each token
  EXPECT_EQ(layers.seconds[1].bw, layers.seconds[1].b + layers.seconds[1].w);
  EXPECT_GT(layers.seconds[1].b, layers.seconds[1].w);  // attention has no W
  EXPECT_EQ(layers.output_bytes[1], 64.0 * 64 * 4);
  EXPECT_GT(layers.kept[1].f_to_w, 0);
  ModelCostOptions mixed = options;
  mixed.recompute = {spec::Recompute::none, spec::Recompute::full, spec::Recompute::none,
                     spec::Recompute::none};
  const Costs of_mixed = layer_costs(model, mixed);
  EXPECT_GT(of_mixed.seconds[1].r, 0);
  EXPECT_EQ(of_mixed.seconds[2].r, 0);
  EXPECT_LT(of_mixed.kept[1].f_to_w, of_mixed.kept[2].f_to_w);
  EXPECT_EQ(of_mixed.kept[2].f_to_w, layers.kept[2].f_to_w);
  ModelCostOptions slow = options;
  slow.bytes_per_second = 1e-3;
  EXPECT_GT(layer_costs(model, slow).seconds[0].f, 0);
}

}  // namespace
}  // namespace trireme::sim
