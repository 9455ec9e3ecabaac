// SPDX-License-Identifier: Apache-2.0
// The expert view of the mesh: which ranks have which leaves, shards and elements of experts. Every
// element of every expert is summed, counted and saved exactly once, on every mesh.
#include <gtest/gtest.h>

#include <fmt/format.h>

#include <functional>
#include <map>
#include <set>

#include "spec/layout/rules.h"
#include "spec/parallel/data_parallel.h"
#include "spec/parallel/tensor_parallel.h"

namespace trireme::spec {
namespace {

constexpr int64_t expert_count = 8, expert_ffn = 8, expert_width = 3;

ModelSpec moe_model() {
  ModelDims dims{.name = "moe",
                 .family = Family::llama,
                 .layers = 3,
                 .hidden = 16,
                 .heads = 4,
                 .ffn = 32,
                 .vocab = 64,
                 .max_seq = 32,
                 .tied_head = false};
  dims.moe = MoeSpec{.router = {.experts = expert_count, .chosen = 2}, .ffn = expert_ffn};
  dims.dense_layers = 1;
  return make_model(dims);
}

// The parameters of a block's experts, in the shapes of [E, 2F, D] and [E, D, F].
std::vector<Param> expert_params() {
  const auto param = [](const char* name, std::vector<int64_t> shape, int dim,
                        std::vector<int64_t> segments, bool decays) {
    Param p;
    p.shard = {name, std::move(shape), {{Axis::ep, 0, {}}, {Axis::etp, dim, std::move(segments)}}};
    p.view = ParamView::expert;
    p.decays = decays;
    return p;
  };
  return {param("gate_up", {expert_count, 2 * expert_ffn, expert_width}, 1,
                {expert_ffn, expert_ffn}, true),
          param("down", {expert_count, expert_width, expert_ffn}, 2, {}, true),
          param("scale", {expert_count, expert_ffn}, 1, {}, false)};
}

struct ExpertCase {
  Layout layout;
  Plan plan;
  int ranks = 0;
  std::string text;
};

// Calls each(case) for every legal layout of up to 16 ranks.
void for_each_case(const std::function<void(const ExpertCase&)>& each) {
  const ModelSpec model = moe_model();
  int count = 0;
  for (const int dp : {1, 2, 3, 4}) {
    for (const int zero : {1, 2, 4}) {
      for (const int cp : {1, 2}) {
        for (const int tp : {1, 2, 4}) {
          for (const int ep : {1, 2, 4, 8}) {
            for (const int etp : {1, 2, 4}) {
              if (dp * zero * cp * tp > 16) continue;
              Layout asked{.tp = tp,
                           .cp = cp,
                           .dp_replicate = dp,
                           .dp_shard = zero,
                           .ep = ep,
                           .etp = etp,
                           .zero_stage = zero * cp == 1 ? 0 : 1 + count++ % 3,
                           .sequence_parallel = tp > 1,
                           .precision = Precision::fp32};
              const Workload work{.seq_len = 16};
              const Settled settled = settle(sizes_of(model), work, 0, asked);
              if (!settled.broken.empty()) continue;
              ExpertCase c{settled.layout, unscheduled_plan(model, work, settled.layout, {}),
                           static_cast<int>(asked.ranks()), words(settled.layout)};
              SCOPED_TRACE(c.text);
              each(c);
            }
          }
        }
      }
    }
  }
}

TEST(ExpertViewTest, every_element_is_summed_counted_and_updated_as_often_as_it_is_held) {
  const std::vector<Param> params = expert_params();
  int cases = 0;
  for_each_case([&](const ExpertCase& c) {
    ++cases;
    const Sizes& mesh = c.plan.mesh;
    const BucketLayout bucket = bucket_layout(params, mesh, ParamView::expert);
    std::map<std::string, std::map<std::vector<int64_t>, int>> counted, updated;
    for (int rank = 0; rank < c.ranks; ++rank) {
      const Coord coord = coord_of(mesh, rank);
      const auto add = [&](const Range& range, auto& times) {
        for (const BucketEntry& entry : bucket.entries) {
          const Range here{std::max(range.begin, entry.offset),
                           std::min(range.end, entry.offset + entry.elements)};
          if (here.begin >= here.end) continue;
          const ShardSpec& shard = params[static_cast<size_t>(entry.param)].shard;
          for (const Piece& piece :
               pieces(shard, mesh, coord, {here.begin - entry.offset, here.end - entry.offset})) {
            std::vector<int64_t> at = piece.lo;
            while (at.front() < piece.hi.front()) {
              ++times[shard.name][at];
              size_t d = at.size() - 1;
              while (++at[d] == piece.hi[d] && d > 0) {
                at[d] = piece.lo[d];
                --d;
              }
            }
          }
        }
      };
      const Range held = reduced_range(c.plan, coord, bucket.size());
      for (const Range& range : counted_along_tp(bucket, held, coord)) add(range, counted);
      add(updated_range(c.plan, coord, bucket.size()), updated);
    }
    const int copies = sum_ranks(mesh, ParamView::expert) / state_shards(c.plan, ParamView::expert);
    for (const Param& param : params) {
      int64_t elements = 1;
      for (const int64_t dim : param.shard.shape) elements *= dim;
      ASSERT_EQ(static_cast<int64_t>(counted[param.shard.name].size()), elements);
      ASSERT_EQ(static_cast<int64_t>(updated[param.shard.name].size()), elements);
      for (const auto& [at, times] : counted[param.shard.name]) ASSERT_EQ(times, 1);
      for (const auto& [at, times] : updated[param.shard.name]) ASSERT_EQ(times, copies);
    }
  });
  EXPECT_GT(cases, 300);
}

TEST(ExpertViewTest, ranks_with_the_same_experts_have_every_leaf_once) {
  for_each_case([&](const ExpertCase& c) {
    const Sizes& mesh = c.plan.mesh;
    EXPECT_EQ(ranks_of(mesh, expert_axes), c.ranks);
    std::map<std::pair<int, int>, std::set<int64_t>> leaves_by_experts;
    std::map<std::pair<int, int>, std::set<int>> places;
    for (int rank = 0; rank < c.ranks; ++rank) {
      const Coord coord = coord_of(mesh, rank);
      EXPECT_EQ(rank_of(mesh, coord), rank);
      const std::pair key(coord[Axis::ep], coord[Axis::etp]);
      const Range held = leaves_of(c.plan, coord, ParamView::expert);
      for (int64_t leaf = held.begin; leaf < held.end; ++leaf) {
        EXPECT_TRUE(leaves_by_experts[key].insert(leaf).second);
      }
      EXPECT_TRUE(places[key].insert(reduced_place(mesh, coord, ParamView::expert)).second);
    }
    EXPECT_EQ(static_cast<int>(leaves_by_experts.size()), c.layout.ep * c.layout.etp);
    for (const auto& [key, leaf_set] : leaves_by_experts) {
      EXPECT_EQ(static_cast<int64_t>(leaf_set.size()), leaves(c.plan, ParamView::expert));
      EXPECT_EQ(*leaf_set.rbegin() + 1, leaves(c.plan, ParamView::expert));
    }
  });
}

TEST(ExpertViewTest, without_ep_etp_and_tp_it_is_the_dense_view) {
  int cases = 0;
  for_each_case([&](const ExpertCase& c) {
    if (c.layout.ep * c.layout.etp * c.layout.tp > 1) return;
    ++cases;
    const Sizes& mesh = c.plan.mesh;
    const int64_t elements = padded_elements(1, sum_ranks(mesh));
    const BucketSize dense{elements}, expert{elements, ParamView::expert};
    EXPECT_EQ(leaves(c.plan, dense.view), leaves(c.plan, expert.view));
    EXPECT_EQ(state_shards(c.plan, dense.view), state_shards(c.plan, expert.view));
    EXPECT_EQ(node_buffers(c.plan, dense.view), node_buffers(c.plan, expert.view));
    for (int rank = 0; rank < c.ranks; ++rank) {
      const Coord coord = coord_of(mesh, rank);
      EXPECT_EQ(leaves_of(c.plan, coord, dense.view), leaves_of(c.plan, coord, expert.view));
      EXPECT_EQ(updated_range(c.plan, coord, dense), updated_range(c.plan, coord, expert));
      EXPECT_EQ(reduced_range(c.plan, coord, dense), reduced_range(c.plan, coord, expert));
    }
  });
  EXPECT_GT(cases, 10);
}

TEST(ExpertViewTest, experts_are_spread_inside_a_copy_first) {
  const auto sizes = [](const Layout& l) { return expert_sizes(l).value_or(ExpertSizes{0, 0}); };
  EXPECT_EQ(sizes({.dp_replicate = 2, .dp_shard = 4, .ep = 2}), (ExpertSizes{2, 2}));
  EXPECT_EQ(sizes({.dp_replicate = 2, .dp_shard = 4, .ep = 4}), (ExpertSizes{2, 1}));
  EXPECT_EQ(sizes({.dp_replicate = 2, .dp_shard = 4, .ep = 8}), (ExpertSizes{1, 1}));
  EXPECT_EQ(sizes({.tp = 2, .cp = 2, .dp_shard = 2, .ep = 4, .etp = 2}), (ExpertSizes{1, 1}));
  EXPECT_EQ(sizes({.dp_replicate = 4, .ep = 2}), (ExpertSizes{2, 1}));
  EXPECT_EQ(sizes({.dp_replicate = 3, .dp_shard = 2, .ep = 3}), (ExpertSizes{0, 0}));
  EXPECT_EQ(sizes({.dp_shard = 2, .ep = 4}), (ExpertSizes{0, 0}));
}

// Layers that are used at one time never share a buffer.
TEST(ExpertViewTest, buffers_of_neighbours_are_different) {
  const ModelSpec model = moe_model();
  for (const int prefetch : {0, 1, 2}) {
    for (const int ep : {1, 2, 4}) {
      const Layout layout{.dp_shard = 4,
                          .ep = ep,
                          .zero_stage = 3,
                          .precision = Precision::fp32,
                          .prefetch = prefetch};
      const Plan plan = unscheduled_plan(
          model, {.seq_len = 8}, settle(sizes_of(model), {.seq_len = 8}, 0, layout).layout, {});
      std::vector<BucketSize> buckets = {{64}};  // dense, dense, then both views
      std::vector<int> layer = {0, 1};
      buckets.push_back({128});
      for (int i = 2; i < 7; ++i) {
        buckets.push_back({256 + 64 * i});
        buckets.push_back({512 + 64 * i, ParamView::expert});
        layer.insert(layer.end(), {i, i});
      }
      const DataBuffers buffers = data_buffers(plan, buckets, false);
      for (size_t a = 0; a < buckets.size(); ++a) {
        const bool is_gathered = gathers_params(plan, buckets[a].view);
        EXPECT_EQ(is_gathered, buckets[a].view == ParamView::dense || ep < 4);
        ASSERT_EQ(buffers.gather_slot[a] >= 0, is_gathered);
        const auto fits = [&](const base::TensorSpec& spec) {
          return spec.shape.elements() >= buckets[a].elements;
        };
        EXPECT_TRUE(fits(buffers.work[static_cast<size_t>(buffers.work_slot[a])]));
        if (is_gathered) {
          EXPECT_TRUE(fits(buffers.gathered[static_cast<size_t>(buffers.gather_slot[a])]));
        }
        for (size_t b = 0; b < a; ++b) {
          const int distance = layer[a] - layer[b];
          if (is_gathered && distance <= prefetch) {
            EXPECT_NE(buffers.gather_slot[a], buffers.gather_slot[b]) << a << " " << b;
          }
          if (distance <= 1) {
            EXPECT_NE(buffers.work_slot[a], buffers.work_slot[b]) << a << " " << b;
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace trireme::spec
