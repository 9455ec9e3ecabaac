// SPDX-License-Identifier: Apache-2.0
// Same bits: at equal logical_dp and reduce, the weights after ten steps do not depend on the
// number of ranks that host the workers, nor on which training state is sharded.
#include <gtest/gtest.h>

#include <map>
#include <tuple>

#include "tests/ranks/ranks_rig.h"

namespace trireme::tests {
namespace {

using device::StreamMode;
using spec::Recompute;
using spec::ReduceWhen;

constexpr int equal_steps = 10;

spec::ModelDims narrow(spec::ModelDims dims) {
  dims.name += "-narrow";
  dims.hidden = 16;
  dims.heads = dims.family == spec::Family::gpt2 ? 2 : 4;
  dims.head_dim = dims.family == spec::Family::gpt2 ? 8 : 4;
  dims.ffn = 24;
  dims.vocab = 37;
  return dims;
}
spec::ModelDims narrow_gpt2() { return narrow(tiny_gpt2()); }    // tied head
spec::ModelDims narrow_llama() { return narrow(tiny_llama()); }  // untied
spec::ModelDims narrow_qwen3() {
  return narrow(tiny_qwen3());
}  // tied, with more kinds of parameters

struct Ranks {
  int dp, zero, stage;
};
const std::vector<Ranks> without_sharded_grads = {{2, 1, 0}, {3, 1, 0}, {4, 1, 0},
                                                  {6, 1, 0}, {8, 1, 0}, {1, 2, 1},
                                                  {1, 6, 1}, {2, 3, 1}, {4, 2, 1}};
const std::vector<Ranks> with_sharded_grads = {{1, 2, 2}, {1, 3, 2}, {1, 4, 3},
                                               {1, 6, 3}, {1, 8, 3}, {2, 2, 2},
                                               {2, 4, 2}, {3, 2, 3}, {2, 3, 3}};

// Compares one layout with the one-rank layout that must have the same bits; the latter runs once.
void expect_same_bits(const Layout& layout) {
  static std::map<std::string, std::string> expected;
  std::string& hash = expected[bits_key(layout)];
  if (hash.empty()) {
    Layout one = layout;
    one.dp = one.zero = 1;
    one.stage = 0;
    one.recompute = Recompute::none;
    one.streams = StreamMode::inline_calls;
    one.split_backward = false;
    hash = train_layout(one, equal_steps);
  }
  EXPECT_EQ(train_layout(layout, equal_steps), hash) << to_string(layout);
}

void expect_same_bits(Layout layout, const std::vector<Ranks>& all) {
  for (const Ranks& ranks : all) {
    layout.dp = ranks.dp;
    layout.zero = ranks.zero;
    layout.stage = ranks.stage;
    expect_same_bits(layout);
  }
}

TEST(RanksTest, one_micro_batch_per_worker) {
  for (const spec::ModelDims& dims : {narrow_gpt2(), narrow_llama()}) {
    for (const char* recipe : {"fp32", "bf16"}) {
      const Layout layout{.dims = dims, .recipe = recipe};
      expect_same_bits(layout, without_sharded_grads);
      expect_same_bits(layout, with_sharded_grads);
    }
  }
}

TEST(RanksTest, one_worker_per_rank) {
  for (const int workers : {2, 3, 4, 6, 8}) {
    const Layout layout{.dims = narrow_qwen3(), .recipe = "bf16", .logical_dp = workers};
    expect_same_bits(layout, {{workers, 1, 0}, {1, workers, 1}, {1, workers, 2}, {1, workers, 3}});
  }
  expect_same_bits({.dims = narrow_qwen3(), .logical_dp = 8}, {{4, 2, 1}, {2, 4, 2}, {2, 4, 3}});
}

// Gradients are summed, and parameters gathered, in two levels: inside nodes and between them.
TEST(RanksTest, nodes_of_several_ranks) {
  for (const int ranks_a_node : {2, 3, 4}) {
    Layout layout{
        .dims = narrow_llama(), .recipe = "bf16", .logical_dp = 24, .ranks_a_node = ranks_a_node};
    expect_same_bits(layout, {{6, 1, 0}, {1, 8, 1}, {2, 4, 3}});
    layout.streams = StreamMode::worker_threads;
    expect_same_bits(layout, {{4, 2, 2}});
  }
}

TEST(RanksTest, accumulation_reduced_once) {
  expect_same_bits({.dims = narrow_qwen3(), .microbatches = 2}, without_sharded_grads);
  expect_same_bits({.dims = narrow_llama(), .recipe = "bf16", .microbatches = 3},
                   without_sharded_grads);
}

TEST(RanksTest, accumulation_reduced_each) {
  for (const auto& [dims, recipe, microbatches] :
       {std::tuple{narrow_gpt2(), "fp32", 3}, {narrow_llama(), "bf16", 2}}) {
    const Layout layout{
        .dims = dims, .recipe = recipe, .microbatches = microbatches, .reduce = ReduceWhen::each};
    expect_same_bits(layout, without_sharded_grads);
    expect_same_bits(layout, with_sharded_grads);
  }
}

// The hashes above are sensitive: another number of workers, another dtype of sums or another time
// of reduction changes bits.
TEST(RanksTest, settings_of_the_numerical_identity_change_bits) {
  const Layout plain{.dims = narrow_llama(), .dp = 2, .recipe = "bf16", .microbatches = 2};
  Layout workers = plain, sums = plain, each = plain;
  workers.logical_dp = 12;
  workers.microbatches = 4;
  sums.reduce_dtype = base::DType::bf16;
  each.reduce = ReduceWhen::each;
  const std::string hash = train_layout(plain, equal_steps);
  EXPECT_NE(train_layout(workers, equal_steps), hash);
  EXPECT_NE(train_layout(sums, equal_steps), hash);
  EXPECT_NE(train_layout(each, equal_steps), hash);
}

TEST(RanksTest, bf16_gradients_and_bf16_sums) {
  Layout layout{.dims = narrow_gpt2(), .recipe = "bf16", .grad = base::DType::bf16};
  expect_same_bits(layout, {{4, 1, 0}, {1, 3, 1}, {1, 8, 2}, {2, 3, 3}});
  layout.grad = base::DType::f32;
  layout.reduce_dtype = base::DType::bf16;
  expect_same_bits(layout, {{8, 1, 0}, {1, 6, 1}, {1, 4, 2}, {1, 2, 3}, {4, 2, 3}});
  layout.microbatches = 2;
  layout.reduce = ReduceWhen::each;
  expect_same_bits(layout, {{3, 1, 0}, {2, 2, 1}, {1, 8, 3}});
}

TEST(RanksTest, split_masters) {
  Layout layout{.dims = narrow_llama(), .recipe = "bf16", .master = base::DType::u16};
  expect_same_bits(layout, without_sharded_grads);
  expect_same_bits(layout, with_sharded_grads);
  layout.dims = narrow_gpt2();
  layout.grad = base::DType::bf16;
  expect_same_bits(layout, {{4, 1, 0}, {1, 3, 1}, {1, 8, 2}, {2, 3, 3}});
}

TEST(RanksTest, prefetch_recompute_and_split_backward) {
  Layout layout{.dims = narrow_qwen3(), .zero = 4, .stage = 3, .recipe = "bf16"};
  for (const int prefetch : {0, 2, 9}) {
    for (const bool after : {false, true}) {
      layout.prefetch = prefetch;
      layout.prefetch_after = after;
      layout.recompute = after ? Recompute::full : Recompute::selective;
      expect_same_bits(layout);
    }
  }
  layout.recompute = Recompute::none;
  layout.split_backward = true;
  expect_same_bits(layout, {{4, 1, 0}, {1, 3, 1}, {2, 4, 1}});
}

TEST(RanksTest, worker_streams) {
  for (const spec::ModelDims& dims : {narrow_gpt2(), narrow_llama()}) {
    Layout layout{.dims = dims,
                  .microbatches = 2,
                  .reduce = ReduceWhen::each,
                  .streams = StreamMode::worker_threads};
    expect_same_bits(layout, {{4, 1, 0}, {1, 2, 1}, {1, 3, 2}, {1, 4, 3}, {2, 2, 3}});
  }
}

}  // namespace
}  // namespace trireme::tests
