// SPDX-License-Identifier: Apache-2.0
// Mixtures of experts on several ranks: experts and their state spread in every way over the ranks
// of the other axes, against one rank. Forward results have the bits of one rank for every ep;
// weight gradients of experts are summed in another order. With one rank along ep, etp and tp every
// data layout has the bits of one rank. On every rank memory and bytes are the predicted ones
// (ranks_rig.h).
#include <gtest/gtest.h>

#include <tuple>

#include "tests/ranks/near_rig.h"

namespace trireme::tests {
namespace {

using spec::Recompute;
using spec::ReduceWhen;

constexpr double expert_bound = 1e-5, expert_loss_bound = 1e-6;

// Sizes that divide by up to 8, 8 experts.
spec::ModelDims with_experts(spec::ModelDims dims) {
  dims.name += "-wide";
  dims.hidden = 32;
  dims.heads = 8;
  dims.head_dim = 4;
  dims.kv_heads = 4;
  if (dims.ffn > 0) dims.ffn = 48;
  dims.moe->router.experts = 8;
  dims.moe->ffn = 16;
  return dims;
}
spec::ModelDims softmax_moe() { return with_experts(tiny_moe()); }
spec::ModelDims shared_moe() {  // a dense block, then one with a bias, groups and shared experts
  spec::ModelDims dims = with_experts(tiny_shared_moe());
  dims.moe->shared_ffn = 24;
  return dims;
}
spec::ModelDims global_moe() {
  spec::ModelDims dims = softmax_moe();
  dims.name += "-global";
  dims.moe->balance.scope = spec::AuxScope::global;
  return dims;
}

struct ExpertDegrees {
  int dp, zero, stage, cp, tp, ep, etp;
};

Layout on_ranks(Layout layout, const ExpertDegrees& d) {
  layout.dp = d.dp;
  layout.zero = d.zero;
  layout.stage = d.stage;
  layout.cp = d.cp;
  layout.tp = d.tp;
  layout.sequence_parallel = d.tp > 1;
  layout.ep = d.ep;
  layout.etp = d.etp;
  return layout;
}

Layout of_model(const spec::ModelDims& dims) {
  return {.dims = dims, .logical_dp = 8, .seq_len = 8};
}

// Every stage of ZeRO, with experts inside a copy of the state and across copies, folded over cp
// and tp.
const std::vector<ExpertDegrees> expert_data_degrees = {
    {2, 1, 0, 1, 1, 2, 1}, {4, 1, 0, 1, 1, 2, 1}, {1, 4, 1, 1, 1, 2, 1}, {1, 4, 2, 1, 1, 2, 1},
    {1, 4, 3, 1, 1, 2, 1}, {1, 4, 3, 1, 1, 4, 1}, {2, 2, 3, 1, 1, 2, 1}, {2, 2, 2, 1, 1, 4, 1},
    {1, 8, 3, 1, 1, 8, 1}, {2, 4, 1, 1, 1, 4, 1}};
const std::vector<ExpertDegrees> folded_degrees = {
    {1, 1, 0, 1, 2, 1, 1}, {1, 1, 0, 1, 2, 2, 1}, {1, 1, 0, 1, 2, 1, 2}, {1, 1, 0, 2, 1, 2, 1},
    {1, 2, 3, 2, 1, 4, 1}, {1, 2, 1, 1, 2, 4, 1}, {1, 2, 3, 1, 2, 2, 2}, {2, 1, 0, 2, 2, 4, 2},
    {1, 2, 2, 2, 2, 2, 1}, {2, 2, 3, 2, 1, 1, 2}};

TEST(ExpertsTest, every_data_layout_is_near_one_rank) {
  for (const ExpertDegrees& degrees : expert_data_degrees) {
    expect_near_one_rank(on_ranks(of_model(softmax_moe()), degrees), expert_bound,
                         expert_loss_bound);
    expect_near_one_rank(on_ranks(of_model(shared_moe()), degrees), expert_bound,
                         expert_loss_bound);
  }
}

TEST(ExpertsTest, experts_fold_over_cp_and_tp) {
  for (const ExpertDegrees& degrees : folded_degrees) {
    expect_near_one_rank(on_ranks(of_model(softmax_moe()), degrees), expert_bound,
                         expert_loss_bound);
    expect_near_one_rank(on_ranks(of_model(shared_moe()), degrees), expert_bound,
                         expert_loss_bound);
  }
}

TEST(ExpertsTest, with_pipelines_recompute_rounds_and_streams) {
  Layout layout = of_model(softmax_moe());
  layout.microbatches = 2;
  for (const Recompute recompute : {Recompute::selective, Recompute::full}) {
    layout.recompute = recompute;
    for (const ExpertDegrees& degrees :
         {ExpertDegrees{2, 1, 0, 1, 1, 2, 1}, ExpertDegrees{1, 4, 1, 1, 1, 2, 1},
          ExpertDegrees{1, 2, 1, 1, 2, 4, 1}}) {
      expect_near_one_rank(on_ranks(layout, degrees), expert_bound, expert_loss_bound);
    }
  }
  layout.recompute = Recompute::none;
  layout.reduce = ReduceWhen::each;
  layout.streams = device::StreamMode::worker_threads;
  for (const ExpertDegrees& degrees :
       {ExpertDegrees{2, 1, 0, 1, 1, 2, 1}, ExpertDegrees{1, 4, 2, 1, 1, 2, 1},
        ExpertDegrees{2, 2, 3, 1, 1, 4, 1}}) {
    expect_near_one_rank(on_ranks(layout, degrees), expert_bound, expert_loss_bound);
  }
  layout = of_model(shared_moe());
  layout.pp = 2;
  layout.microbatches = 4;
  layout.logical_dp = 2;
  for (const ExpertDegrees& degrees :
       {ExpertDegrees{2, 1, 0, 1, 1, 2, 1}, ExpertDegrees{1, 2, 1, 1, 1, 2, 1}}) {
    expect_near_one_rank(on_ranks(layout, degrees), expert_bound, expert_loss_bound);
  }
}

// The scope of all ranks reads what the step has counted so far, which depends on the order of
// micro-batches; with one micro-batch on every rank all choices of the step are in it.
TEST(ExpertsTest, loads_of_the_step_are_those_of_all_ranks) {
  Results expected;
  for (const int ep : {1, 2, 4}) {
    Layout layout = on_ranks(of_model(global_moe()), {4, 1, 0, 1, 1, ep, 1});
    layout.logical_dp = 4;
    const Results found = results_of(layout, 1);
    if (ep == 1) expected = found;
    EXPECT_EQ(found.losses, expected.losses);
    const std::string router = "blocks.0.router.weight";
    EXPECT_EQ(found.grads.at(router), expected.grads.at(router)) << ep;
  }
}

// Without ep, etp and tp the leaves of experts are those of other parameters.
TEST(ExpertsTest, data_layouts_give_the_bits_of_one_rank) {
  for (const char* recipe : {"fp32", "bf16"}) {
    for (const ReduceWhen reduce : {ReduceWhen::once, ReduceWhen::each}) {
      Layout layout = of_model(shared_moe());
      layout.recipe = recipe;
      layout.reduce = reduce;
      layout.reduce_dtype = reduce == ReduceWhen::each ? base::DType::bf16 : base::DType::f32;
      layout.microbatches = 2;
      const std::string hash = train_layout(layout, 5);
      for (const auto& [dp, zero, stage] : {std::tuple{2, 1, 0},
                                            {4, 1, 0},
                                            {1, 4, 1},
                                            {2, 2, 1},
                                            {1, 2, 2},
                                            {1, 4, 3},
                                            {2, 2, 3}}) {
        if (stage >= 2 && reduce == ReduceWhen::once) continue;
        EXPECT_EQ(train_layout(on_ranks(layout, {dp, zero, stage, 1, 1, 1, 1}), 5), hash)
            << to_string(on_ranks(layout, {dp, zero, stage, 1, 1, 1, 1}));
      }
    }
  }
}

// At equal ep all stages of ZeRO have the same bits, and so have repeated runs.
TEST(ExpertsTest, zero_stages_give_the_same_bits_at_equal_ep) {
  for (const int ep : {2, 4}) {
    const Layout layout = of_model(softmax_moe());
    const std::string hash = train_layout(on_ranks(layout, {1, 4, 1, 1, 1, ep, 1}), 5);
    for (const int stage : {1, 2, 3}) {
      EXPECT_EQ(train_layout(on_ranks(layout, {1, 4, stage, 1, 1, ep, 1}), 5), hash) << stage;
    }
    EXPECT_EQ(train_layout(on_ranks(layout, {4, 1, 0, 1, 1, ep, 1}), 5), hash);
    EXPECT_EQ(train_layout(on_ranks(layout, {2, 2, 2, 1, 1, ep, 1}), 5), hash);
  }
}

// Gradients of parameters that are not experts' do not depend on where experts are.
TEST(ExpertsTest, dense_gradients_have_the_same_bits_for_every_ep) {
  Results expected;
  for (const int ep : {1, 2, 4, 8}) {
    const Results found = results_of(on_ranks(of_model(softmax_moe()), {8, 1, 0, 1, 1, ep, 1}), 1);
    if (ep == 1) expected = found;
    EXPECT_EQ(found.losses, expected.losses);
    int compared = 0;
    for (const auto& [name, grads] : expected.grads) {
      if (name.find("experts") != std::string::npos) continue;
      ++compared;
      EXPECT_EQ(found.grads.at(name), grads) << name << ", ep " << ep;
    }
    EXPECT_GT(compared, 0);
  }
}

// 8 tokens with 2 experts each on a rank, half of 8 experts on each of two ranks: a block has room
// for 16 rows of 32 floats. In forward half of the counts (8), of the weights (32) and of the rows
// (32) goes to the other rank, and as many rows come back; in backward half of the gradients of
// rows goes out, and half of those of rows and weights comes back.
TEST(ExpertsTest, bytes_along_ep_by_hand) {
  const Layout layout = on_ranks(of_model(softmax_moe()), {2, 1, 0, 1, 1, 2, 1});
  const spec::ModelSpec model = spec::make_model(layout.dims);
  const spec::TrafficTable sent = spec::predict_traffic(model, plan_of(layout, model), {});
  const int64_t layers = 2, microbatches = 4, f32 = 4, rows = 16 * 32 * f32, weights = 16 * f32;
  EXPECT_EQ(sent.ep_forward, layers * microbatches * (4 * f32 + weights + 2 * rows));
  EXPECT_EQ(sent.ep_backward, layers * microbatches * (rows + weights + rows));
}

// Muon updates matrices of all layers, AdamW the experts.
TEST(ExpertsTest, muon) {
  Layout layout = of_model(shared_moe());
  layout.optimizer = spec::OptimizerKind::muon;
  const std::string hash = train_layout(layout, 3);
  EXPECT_EQ(train_layout(on_ranks(layout, {2, 2, 1, 1, 1, 1, 1}), 3), hash);
  expect_near_one_rank(on_ranks(layout, {1, 4, 1, 1, 1, 2, 1}), 1e-4);
}

}  // namespace
}  // namespace trireme::tests
