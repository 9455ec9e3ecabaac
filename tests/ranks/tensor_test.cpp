// SPDX-License-Identifier: Apache-2.0
// Tensor and sequence parallelism against one rank, alone and with every data layout. The order of
// sums changes with tp, so results agree within a bound; all ranks of a layout have the same bits.
#include <gtest/gtest.h>

#include <tuple>

#include "tests/ranks/near_rig.h"

namespace trireme::tests {
namespace {

using spec::Recompute;
using spec::ReduceWhen;

// Heads and feed-forward width divide by up to 8; the vocabulary is prime.
spec::ModelDims wide(spec::ModelDims dims) {
  dims.name += "-wide";
  dims.hidden = 32;
  dims.heads = 8;
  dims.head_dim = 4;
  dims.kv_heads = dims.family == spec::Family::gpt2 ? 8 : 4;
  dims.ffn = 48;
  dims.vocab = 61;
  return dims;
}
spec::ModelDims wide_gpt2() { return wide(tiny_gpt2()); }    // tied head, biases
spec::ModelDims wide_llama() { return wide(tiny_llama()); }  // untied
spec::ModelDims wide_qwen3() { return wide(tiny_qwen3()); }  // norms of q and k

// Ranks along the axes, and the ZeRO stage.
struct Degrees {
  int dp, zero, stage, tp;
};

void expect_near(Layout layout, const std::vector<Degrees>& all, double bound) {
  for (const Degrees& ranks : all) {
    for (const bool sequence_parallel : {false, true}) {
      layout.dp = ranks.dp;
      layout.zero = ranks.zero;
      layout.stage = ranks.stage;
      layout.tp = ranks.tp;
      layout.sequence_parallel = sequence_parallel;
      layout.sequences = ranks.tp > 2 ? 4 : 1;  // 6 tokens each: must divide by tp
      expect_near_one_rank(layout, bound);
    }
  }
}

const std::vector<Degrees> with_data_axes = {{2, 1, 0, 2}, {3, 1, 0, 2}, {1, 2, 1, 2},
                                             {1, 3, 2, 2}, {1, 2, 3, 4}, {1, 4, 3, 2},
                                             {2, 2, 1, 2}, {2, 2, 3, 2}};

TEST(TensorTest, without_data_axes) {
  for (const spec::ModelDims& dims : {wide_gpt2(), wide_llama(), wide_qwen3()}) {
    expect_near({.dims = dims, .logical_dp = 1, .microbatches = 2}, {{1, 1, 0, 2}, {1, 1, 0, 4}},
                1e-5);
  }
  expect_near({.dims = wide_gpt2(), .logical_dp = 1}, {{1, 1, 0, 8}}, 1e-5);
}

TEST(TensorTest, with_data_parallel_and_zero) {
  expect_near({.dims = wide_gpt2(), .logical_dp = 12}, with_data_axes, 1e-5);
  expect_near({.dims = wide_qwen3(), .logical_dp = 12}, with_data_axes, 1e-5);
  Layout each{
      .dims = wide_llama(), .logical_dp = 12, .microbatches = 2, .reduce = ReduceWhen::each};
  expect_near(each, with_data_axes, 1e-5);
}

TEST(TensorTest, recompute_split_backward_and_worker_streams) {
  Layout layout{.dims = wide_qwen3(), .logical_dp = 2, .microbatches = 2};
  for (const Recompute recompute : {Recompute::selective, Recompute::full}) {
    layout.recompute = recompute;
    expect_near(layout, {{1, 1, 0, 2}, {2, 1, 0, 2}, {1, 1, 0, 4}}, 1e-5);
  }
  layout.dims = wide_gpt2();
  layout.recompute = Recompute::selective;
  layout.split_backward = true;
  expect_near(layout, {{1, 1, 0, 4}, {1, 2, 1, 2}}, 1e-5);
  layout.split_backward = false;
  layout.streams = device::StreamMode::worker_threads;
  layout.reduce = ReduceWhen::each;
  expect_near(layout, {{1, 1, 0, 4}, {1, 2, 3, 2}}, 1e-5);
}

// bf16 rounds what ranks send, so the bound is that of bf16.
TEST(TensorTest, bf16) {
  for (const spec::ModelDims& dims : {wide_gpt2(), wide_llama()}) {
    expect_near({.dims = dims, .recipe = "bf16", .logical_dp = 2},
                {{1, 1, 0, 2}, {1, 2, 3, 2}, {2, 1, 0, 4}}, 3e-2);
  }
}

// At equal tp every data layout gives the same bits.
TEST(TensorTest, data_layouts_give_the_same_bits_at_equal_tp) {
  for (const bool sequence_parallel : {false, true}) {
    for (const char* recipe : {"fp32", "bf16"}) {
      Layout layout{.dims = wide_qwen3(),
                    .tp = 2,
                    .sequence_parallel = sequence_parallel,
                    .recipe = recipe,
                    .logical_dp = 4};
      const std::string hash = train_layout(layout, 10);
      for (const auto& [dp, zero, stage] :
           {std::tuple{2, 1, 0}, {4, 1, 0}, {1, 4, 1}, {1, 2, 2}, {1, 4, 3}, {2, 2, 3}}) {
        layout.dp = dp;
        layout.zero = zero;
        layout.stage = stage;
        EXPECT_EQ(train_layout(layout, 10), hash) << to_string(layout);
      }
    }
  }
}

}  // namespace
}  // namespace trireme::tests
