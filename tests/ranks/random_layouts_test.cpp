// SPDX-License-Identifier: Apache-2.0
// Random layouts of at most eight ranks: memory and bytes as predicted and, for models with
// experts, gradients and weights near those of one rank.
#include <gtest/gtest.h>

#include <cstdlib>

#include "base/error.h"
#include "spec/layout/layout_samples_test.h"
#include "tests/ranks/near_rig.h"

namespace trireme::tests {
namespace {

TEST(RandomLayouts, use_memory_and_send_bytes_as_predicted) {
  train_random_layouts(31, 200, false);
}

TEST(RandomLayouts, of_experts_use_memory_and_send_bytes_as_predicted) {
  train_random_experts(37, 60, false);
}

// Few models, so that few runs on one rank are needed.
std::vector<spec::ModelDims> expert_models() {
  std::vector<spec::ModelDims> models = {tiny_moe(), tiny_shared_moe()};
  models[1].dense_layers = 0;
  for (spec::ModelDims& dims : models) {
    dims.name += "-of-random-layouts";
    dims.hidden = 32;
    dims.heads = dims.kv_heads = 8;
    dims.head_dim = 4;
    dims.layers = 4;
    dims.moe->router.experts = 8;
    dims.moe->shared_ffn = dims.moe->shared_ffn > 0 ? 16 : 0;
  }
  return models;
}

Layout any_expert_layout(spec::LayoutDice& dice, const std::vector<spec::ModelDims>& models) {
  const auto degree = [&dice] { return dice.of<int>({1, 1, 2, 4}); };
  Layout l{.dims = dice.of(models), .logical_dp = 4, .microbatches = 2, .seq_len = 8};
  l.dp = degree();
  l.zero = degree();
  l.stage = l.zero > 1 ? dice.of<int>({1, 2, 3}) : 0;
  l.tp = degree();
  l.sequence_parallel = l.tp > 1;
  l.cp = dice.of<int>({1, 1, 2});
  l.pp = dice.of<int>({1, 1, 2});
  l.ep = dice.of<int>({1, 2, 4, 8});
  l.etp = dice.of<int>({1, 1, 2});
  l.reduce = l.stage >= 2 ? spec::ReduceWhen::each : spec::ReduceWhen::once;
  l.recompute = static_cast<spec::Recompute>(dice.below(3));
  l.streams = dice.either() ? device::StreamMode::inline_calls : device::StreamMode::worker_threads;
  return l;
}

bool is_legal(const Layout& layout) {
  try {
    plan_of(layout, spec::make_model(layout.dims));
    return true;
  } catch (const base::ConfigError&) {
    return false;  // refused by a rule
  }
}

TEST(RandomLayouts, of_experts_train_as_one_rank_does) {
  constexpr int min_random_ranks = 2, max_random_ranks = 8;
  spec::LayoutDice dice(41);
  const std::vector<spec::ModelDims> models = expert_models();
  const int count = std::getenv("TRIREME_FULL") != nullptr ? 200 : 12;
  for (int done = 0; done < count;) {
    const Layout layout = any_expert_layout(dice, models);
    if (ranks_of(layout) < min_random_ranks || ranks_of(layout) > max_random_ranks ||
        !is_legal(layout))
      continue;
    expect_near_one_rank(layout, 1e-5, 1e-6);
    ++done;
  }
}

}  // namespace
}  // namespace trireme::tests
