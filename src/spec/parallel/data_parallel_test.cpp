// SPDX-License-Identifier: Apache-2.0
#include "spec/parallel/data_parallel.h"

#include <gtest/gtest.h>

#include <functional>
#include <set>

#include "base/error.h"
#include "spec/memory/predict.h"
#include "spec/parallel/sum_tree.h"

namespace trireme::spec {
namespace {

ModelSpec small_model(bool tied) {
  return make_model({.name = "small",
                     .family = Family::llama,
                     .layers = 4,
                     .hidden = 256,
                     .heads = 4,
                     .ffn = 1024,
                     .vocab = 1024,
                     .max_seq = 64,
                     .tied_head = tied});
}

Coord coord_of(int dp, int zero) {
  Coord coord;
  coord[Axis::dp] = dp;
  coord[Axis::zero] = zero;
  return coord;
}

Plan data_plan(const ModelSpec& model, int microbatches, Layout layout) {
  layout.precision = Precision::fp32;
  layout.accumulation = microbatches;
  return solve_or_throw(model, {.seq_len = 8}, layout, {});
}

std::string refusal(const Layout& layout, int microbatches) {
  try {
    (void)data_plan(small_model(false), microbatches, layout);
  } catch (const base::ConfigError& error) {
    return error.what();
  }
  return "";
}

// Every rank folds its leaves into its nodes of the tree, for every number of ranks.
TEST(DataParallelTest, folds_leave_the_cover_of_the_tree) {
  for (int64_t workers = 1; workers <= 48; ++workers) {
    for (int ranks = 1; ranks <= workers; ++ranks) {
      if (workers % ranks != 0) continue;
      for (int rank = 0; rank < ranks; ++rank) {
        const Range held = leaves_of_rank(workers, ranks, rank);
        std::vector<Range> stack;
        int64_t leaf = held.begin;
        for (const Fold& fold : folds(workers, held)) {
          ASSERT_EQ(static_cast<size_t>(fold.stacked), stack.size());
          stack.push_back({leaf, leaf + 1});
          ++leaf;
          for (int i = 0; i < fold.merges; ++i) {
            const Range top = stack.back();
            stack.pop_back();
            stack.back().end = top.end;
          }
        }
        EXPECT_EQ(leaf, held.end);
        EXPECT_EQ(stack, tree_cover(workers, held));
      }
    }
  }
}

TEST(DataParallelTest, every_layout_runs_the_same_micro_batches) {
  const ModelSpec model = small_model(false);
  for (const ReduceWhen reduce : {ReduceWhen::once, ReduceWhen::each}) {
    for (const auto& [dp, zero] : {std::pair{1, 1}, {2, 1}, {2, 3}, {4, 2}, {1, 8}}) {
      const Plan plan = data_plan(model, 3,
                                  {.dp_replicate = dp,
                                   .dp_shard = zero,
                                   .zero_stage = zero > 1 ? 1 : 0,
                                   .logical_dp = 24,
                                   .reduce = reduce});
      std::set<int64_t> seen;
      for (int d = 0; d < dp; ++d) {
        for (int z = 0; z < zero; ++z) {
          for (int i = 0; i < plan.schedule.microbatches; ++i) {
            const int64_t number = global_microbatch(plan, coord_of(d, z), i);
            EXPECT_TRUE(seen.insert(number).second);
            const Leaf leaf = leaf_of(plan, i);
            EXPECT_EQ(number / 3,
                      workers_of(plan, data_rank(plan.mesh, coord_of(d, z))).begin + leaf.hosted);
            EXPECT_EQ(leaf.round, reduce == ReduceWhen::each ? number % 3 : 0);
          }
        }
      }
      EXPECT_EQ(seen.size(), 72U);
      EXPECT_EQ(*seen.rbegin(), 71);
    }
  }
}

TEST(DataParallelTest, summed_ranges_make_up_updated_ranges) {
  Plan plan;
  plan.mesh[Axis::dp] = 3;
  plan.mesh[Axis::zero] = 4;
  plan.zero.optim = true;
  const int64_t elements = 12 * 128 * 5;
  for (int z = 0; z < 4; ++z) {
    const Range updated = updated_range(plan, coord_of(0, z), {elements});
    int64_t at = updated.begin;
    for (int d = 0; d < 3; ++d) {
      const Range reduced = reduced_range(plan, coord_of(d, z), {elements});
      EXPECT_EQ(reduced.begin, at);
      at = reduced.end;
    }
    EXPECT_EQ(at, updated.end);
  }
}

// 18, 6 + 12/N, 2 + 16/N, 18/N bytes per parameter with fp32 gradients; 16, 4 + 12/N, 2 + 14/N,
// 16/N with bf16 gradients; up to padding. (With one micro-batch ZeRO-1 needs less: grad_places.h.)
TEST(DataParallelTest, state_is_what_zero_promises) {
  const ModelSpec model = small_model(false);
  for (const int n : {2, 4, 8}) {
    for (int stage = 0; stage <= 3; ++stage) {
      for (const base::DType grad : {base::DType::f32, base::DType::bf16}) {
        Layout layout{.accumulation = stage == 1 ? 2 : 1, .grad_dtype = grad};
        set_data_ranks(layout, n, stage);
        const Plan plan = solve_or_throw(model, {.seq_len = 64}, layout, {});
        const MemoryTable& m = plan.predicted.memory.front();
        const double g = static_cast<double>(base::size_of(grad));
        const double expected =
            (stage >= 3 ? 2.0 / n : 2) + (stage >= 2 ? g / n : g) + (stage >= 1 ? 12.0 / n : 12);
        const int64_t tables = base::bytes_of(rope_table_spec(model, 64));
        EXPECT_NEAR(static_cast<double>(m.params + m.grads + m.optim - tables) /
                        static_cast<double>(parameter_count(model)),
                    expected, 0.02)
            << n << " ranks, ZeRO-" << stage;
      }
    }
  }
}

// Every element of a bucket's gradients is either written by a product or starts at zero. Products
// write whole matrices.
TEST(DataParallelTest, gradients_are_written_or_start_at_zero) {
  ModelSpec model = make_model({.name = "odd",
                                .family = Family::gpt2,
                                .layers = 2,
                                .hidden = 36,
                                .heads = 4,
                                .ffn = 100,
                                .vocab = 67,
                                .max_seq = 16});
  Sizes ranks;
  ranks[Axis::tp] = 2;
  ranks[Axis::zero] = 3;
  for (const Sizes& sizes : {Sizes{}, ranks}) {
    for (int layer = 0; layer < static_cast<int>(model.layers.size()); ++layer) {
      const std::vector<Param> params = params_of(model, layer);
      const BucketLayout bucket = bucket_layout(params, sizes);
      std::vector<int> times(static_cast<size_t>(bucket.elements));
      for (const Range& range : bucket.zeroed) {
        for (int64_t i = range.begin; i < range.end; ++i) ++times[static_cast<size_t>(i)];
      }
      for (const BucketEntry& entry : bucket.entries) {
        const Param& param = params[static_cast<size_t>(entry.param)];
        if (!param.is_written) continue;
        EXPECT_EQ(param.shard.shape.size(), 2) << param.shard.name;
        for (int64_t i = 0; i < entry.elements; ++i) ++times[static_cast<size_t>(entry.offset + i)];
      }
      EXPECT_EQ(std::set<int>(times.begin(), times.end()), std::set<int>{1}) << "layer " << layer;
    }
  }
}

// DDP, ZeRO-1 and -2 at one micro-batch: twice (N-1)/N of the gradients; ZeRO-3: half as much more.
TEST(DataParallelTest, traffic_is_what_zero_promises) {
  const ModelSpec model = small_model(true);
  const auto bytes = [&model](int stage, int n) {
    Layout layout{.precision = Precision::fp32};
    set_data_ranks(layout, n, stage);
    const Plan plan = solve_or_throw(model, {.seq_len = 64}, layout, {});
    const TrafficTable t = predict_traffic(model, plan, {});
    return t.total() - t.step_sums;
  };
  for (const int n : {2, 4, 8}) {
    int64_t grads = 0;
    Sizes mesh;
    mesh[Axis::dp] = n;
    for (int layer = 0; layer < static_cast<int>(model.layers.size()); ++layer) {
      grads += 4 * bucket_layout(params_of(model, layer), mesh).elements;
    }
    for (int stage = 0; stage <= 2; ++stage) EXPECT_EQ(bytes(stage, n), 2 * (n - 1) * grads / n);
    EXPECT_EQ(bytes(3, n), 3 * (n - 1) * grads / n);
  }
}

// On two nodes of 4 ranks the sums of a node leave it once: half of the gradients, a quarter of
// that from each rank. The order of a copy's shards in the group is not that of the nodes.
TEST(DataParallelTest, sums_cross_nodes_once) {
  const ModelSpec model = small_model(true);
  const std::vector<int> nodes = {0, 0, 0, 0, 1, 1, 1, 1};
  const auto traffic = [&](const Layout& layout, std::span<const int> of_ranks) {
    return predict_traffic(model, solve_or_throw(model, {.seq_len = 64}, layout, {}), {}, of_ranks);
  };
  for (Layout layout : {Layout{.dp_replicate = 8},
                        {.dp_shard = 8, .zero_stage = 1},
                        {.dp_replicate = 2, .dp_shard = 4, .zero_stage = 2},
                        {.dp_replicate = 4, .dp_shard = 2, .zero_stage = 3}}) {
    layout.precision = Precision::fp32;
    const TrafficTable one = traffic(layout, {}), two = traffic(layout, nodes);
    EXPECT_EQ(one.reduce_network, 0);
    EXPECT_EQ(7 * two.reduce_network, one.reduce_grads);  // of 7 shares one goes to the other node
    EXPECT_EQ(two.reduce_grads, one.reduce_grads);
    EXPECT_EQ(two.total(), one.total());
  }
  // 3 workers a rank: each has two parts of the sum, but the four ranks of a node fold into one
  // node of the tree, and one more: [0, 8) and [8, 12) of 24 leaves.
  Layout hosted{.dp_replicate = 8, .logical_dp = 24, .precision = Precision::fp32};
  const TrafficTable one = traffic(hosted, {}), two = traffic(hosted, nodes);
  EXPECT_EQ(one.reduce_grads % (2 * 7), 0);
  const int64_t share = one.reduce_grads / (2 * 7);
  EXPECT_EQ(two.reduce_grads, (2 * 2 * 3 + 2) * share);
  EXPECT_EQ(two.reduce_network, 2 * share);
}

TEST(DataParallelTest, illegal_layouts_are_refused_with_legal_values) {
  const auto expect_refusal = [](const Layout& data, const char* what, int microbatches = 1) {
    const std::string message = refusal(data, microbatches);
    EXPECT_NE(message.find(what), std::string::npos) << message;
  };
  expect_refusal({.dp_replicate = 4, .logical_dp = 10},
                 "logical_dp = 10: must be a multiple of the 4 data ranks; nearest: 8 or 12 "
                 "[logical_dp.multiple]");
  expect_refusal({.dp_replicate = 4, .logical_dp = 2}, "nearest: 4");
  expect_refusal({.dp_shard = 2}, "zero_stage = 0: shards nothing over dp_shard = 2");
  expect_refusal({.dp_shard = 2, .zero_stage = 4}, "zero_stage = 4: from 1 to 3");
  expect_refusal({.dp_shard = 2, .zero_stage = 2, .reduce = ReduceWhen::once},
                 "gradients are summed after each", 2);
  expect_refusal({.dp_replicate = 0}, "dp_replicate = 0: from 1 to");
  expect_refusal({.dp_replicate = 1 << 30, .dp_shard = 1 << 30},
                 "dp_shard = 1073741824: from 1 to");
  expect_refusal({.dp_replicate = 1 << 16, .dp_shard = 2, .zero_stage = 1},
                 "at most 65536 data ranks");
  expect_refusal({.logical_dp = 1 << 30}, "must be a multiple of the 1 data ranks up to 65536");
  expect_refusal({.dp_replicate = 2, .reduce_dtype = base::DType::i32}, "use f32 or bf16");
  EXPECT_EQ(refusal({.dp_shard = 2, .zero_stage = 2, .reduce = ReduceWhen::each}, 2), "");
}

}  // namespace
}  // namespace trireme::spec
