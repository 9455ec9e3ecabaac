// SPDX-License-Identifier: Apache-2.0
#include "spec/parallel/data_parallel.h"

#include <algorithm>
#include <array>
#include <tuple>

#include "base/check.h"
#include "spec/context/context_traffic.h"
#include "spec/experts/expert_traffic.h"
#include "spec/parallel/pipeline_parallel.h"
#include "spec/parallel/sum_tree.h"
#include "spec/parallel/tensor_parallel.h"
#include "spec/state/muon.h"
#include "spec/state/state_layout.h"
#include "spec/sums/sum_levels.h"

namespace trireme::spec {
namespace {

constexpr std::array all_views = {ParamView::dense, ParamView::expert};
static_assert(all_views.size() == static_cast<size_t>(ParamView::count));

// Returns the rank's index among those of the view in the order of their leaves.
int leaf_place(const Sizes& sizes, const Coord& coord, ParamView view) {
  if (view == ParamView::dense) {
    return coord[Axis::cp] * data_ranks(sizes) + data_rank(sizes, coord);
  }
  const auto key = [&sizes](const Coord& c) {
    return std::tuple(c[Axis::cp], c[Axis::tp], data_rank(sizes, c));
  };
  // Ranks with the same experts are `stride` ranks apart.
  const int stride = sizes[Axis::ep] * sizes[Axis::etp], ranks = sum_ranks(sizes, view);
  const int own = rank_of(sizes, coord);
  const int first = own / (stride * ranks) * (stride * ranks) + own % stride;
  int place = 0;
  for (int i = 0; i < ranks; ++i) {
    if (key(coord_of(sizes, first + i * stride)) < key(coord)) ++place;
  }
  return place;
}

}  // namespace

int data_ranks(const Sizes& sizes) { return sizes[Axis::dp] * sizes[Axis::zero]; }

int sum_ranks(const Sizes& sizes, ParamView view) { return mesh_view(view).ranks(sizes); }

bool sums_with_peers(const Sizes& sizes) {
  return std::ranges::any_of(all_views, [&](ParamView view) { return sum_ranks(sizes, view) > 1; });
}

int closing_ranks(const Sizes& sizes) {
  return sum_ranks(sizes) * sizes[Axis::tp] * sizes[Axis::pp];
}

int data_rank(const Sizes& sizes, const Coord& coord) {
  return coord[Axis::dp] * sizes[Axis::zero] + coord[Axis::zero];
}

int closing_rank(const Sizes& sizes, const Coord& coord) {
  const int part = data_rank(sizes, coord) * sizes[Axis::cp] + coord[Axis::cp];
  return (part * sizes[Axis::pp] + coord[Axis::pp]) * sizes[Axis::tp] + coord[Axis::tp];
}

int hosted_workers(const Plan& plan) { return plan.layout.logical_dp / data_ranks(plan.mesh); }

int worker_microbatches(const Plan& plan) {
  return plan.schedule.microbatches / hosted_workers(plan);
}

int reduce_rounds(const Plan& plan) {
  return plan.layout.reduce == ReduceWhen::each ? worker_microbatches(plan) : 1;
}

Leaf leaf_of(const Plan& plan, int index) {
  TRIREME_CHECK(index >= 0 && index < plan.schedule.microbatches, "micro-batch {} of {}", index,
                plan.schedule.microbatches);
  if (plan.layout.reduce == ReduceWhen::once) return {index / worker_microbatches(plan), 0};
  return {index % hosted_workers(plan), index / hosted_workers(plan)};
}

int64_t global_microbatch(const Plan& plan, const Coord& coord, int index) {
  const Leaf leaf = leaf_of(plan, index);
  const int64_t worker = workers_of(plan, data_rank(plan.mesh, coord)).begin + leaf.hosted;
  const int64_t each = worker_microbatches(plan);
  return worker * each + (plan.layout.reduce == ReduceWhen::once ? index % each : leaf.round);
}

base::DType sum_dtype(const Plan& plan, ParamView view) {
  return leaves(plan, view) > 1 && plan.layout.reduce_dtype == base::DType::bf16 ? base::DType::bf16
                                                                                 : plan.recipe.grad;
}

std::vector<Fold> folds(int64_t leaf_count, Range held) {
  std::vector<Fold> all;
  int stacked = 0;
  // A node of the tree that lies inside `held`, folded leaf by leaf: the nodes that its last leaf
  // ends, from the smallest on, are added right after that leaf.
  for (const Range& node : tree_cover(leaf_count, held)) {
    std::vector<Range> single;
    for (int64_t i = 0; i < node.end - node.begin; ++i) single.push_back({i, i + 1});
    for (const TreeOp op : tree_program(node.end - node.begin, single)) {
      if (op == TreeOp::push) {
        all.push_back({stacked++, 0});
      } else {
        ++all.back().merges;
        --stacked;
      }
    }
  }
  return all;
}

Range workers_of(const Plan& plan, int data_rank) {
  return leaves_of_rank(plan.layout.logical_dp, data_ranks(plan.mesh), data_rank);
}

int64_t leaves(const Plan& plan, ParamView view) {
  return int64_t{hosted_workers(plan)} * sum_ranks(plan.mesh, view);
}

Range leaves_of(const Plan& plan, const Coord& coord, ParamView view) {
  return leaves_of_rank(leaves(plan, view), sum_ranks(plan.mesh, view),
                        leaf_place(plan.mesh, coord, view));
}

int node_buffers(const Plan& plan, ParamView view) {
  const int ranks = sum_ranks(plan.mesh, view);
  const int64_t all = leaves(plan, view);
  if (all == ranks) return 0;  // one leaf per rank
  int max = 0;
  for (int rank = 0; rank < ranks; ++rank) {
    for (const Fold& fold : folds(all, leaves_of_rank(all, ranks, rank))) {
      max = std::max(max, fold.stacked);
    }
  }
  return max;
}

std::vector<BucketKey> bucket_keys(const ModelSpec& model, const Plan& plan, int pp_rank) {
  std::vector<BucketKey> keys;
  for (const int layer : layers_of_rank(model, plan, pp_rank)) {
    for (const BucketKind& kind : bucket_kinds(model, layer, plan.recipe)) {
      keys.push_back({layer, kind.view, kind.is_matrix});
    }
  }
  return keys;
}

std::vector<BucketLayout> bucket_layouts(const ModelSpec& model, const Plan& plan, int pp_rank) {
  std::vector<BucketLayout> layouts;
  for (const int layer : layers_of_rank(model, plan, pp_rank)) {
    for (BucketLayout& layout : layer_buckets(model, layer, plan.recipe, plan.mesh)) {
      layouts.push_back(std::move(layout));
    }
  }
  return layouts;
}

int state_shards(const Plan& plan, ParamView view) {
  return plan.zero.optim ? mesh_view(view).shards(plan.mesh) : 1;
}

bool gathers_params(const Plan& plan, ParamView view) {
  return plan.zero.params && state_shards(plan, view) > 1;
}

Range updated_range(const Plan& plan, const Coord& coord, const BucketSize& bucket) {
  if (!plan.zero.optim) return {0, bucket.elements};
  const int64_t share = bucket.elements / state_shards(plan, bucket.view);
  const int64_t shard = mesh_view(bucket.view).shard_of(plan.mesh, coord);
  return {shard * share, (shard + 1) * share};
}

Range reduced_range(const Plan& plan, const Coord& coord, const BucketSize& bucket) {
  const int64_t share = bucket.elements / sum_ranks(plan.mesh, bucket.view);
  const int64_t place = reduced_place(plan.mesh, coord, bucket.view);
  return {place * share, (place + 1) * share};
}

int reduced_place(const Sizes& sizes, const Coord& coord, ParamView view) {
  const MeshView& axes = mesh_view(view);
  return axes.shard_of(sizes, coord) * axes.replicas(sizes) + axes.replica_of(sizes, coord);
}

bool is_tied(const ModelSpec& model) {
  const std::vector<Param> head = params_of(model, static_cast<int>(model.layers.size()) - 1);
  return std::any_of(head.begin(), head.end(), [](const Param& param) { return param.tied_copy; });
}

namespace {

// Returns the world ranks that sum the gradients of a view with this one, by reduced_place().
std::vector<int> summing_ranks(const Sizes& sizes, const Coord& coord, ParamView view) {
  const MeshView& along = mesh_view(view);
  const bool has_experts = has_expert_axes(sizes);
  const AxisView& axes = view == ParamView::expert && has_experts ? expert_axes : dense_axes;
  std::vector<int> members(static_cast<size_t>(sum_ranks(sizes, view)));
  for (int rank = 0; rank < ranks_of(sizes, dense_axes); ++rank) {
    const Coord other = coord_of(sizes, rank);
    const bool is_member = std::ranges::all_of(axes, [&](Axis axis) {
      return other[axis] == coord[axis] || std::ranges::count(along.shard, axis) > 0 ||
             std::ranges::count(along.replicate, axis) > 0;
    });
    if (is_member) members[static_cast<size_t>(reduced_place(sizes, other, view))] = rank;
  }
  return members;
}

// Returns what a rank sends for a sum over the ranks of a view, in shares of a rank.
SharesSent reduce_shares(const Plan& plan, const Coord& coord, ParamView view,
                         std::span<const int> nodes) {
  const int ranks = sum_ranks(plan.mesh, view);
  if (ranks == 1) return {};
  if (nodes.empty()) {
    const auto parts = tree_cover(leaves(plan, view), leaves_of(plan, coord, view)).size();
    return {static_cast<int64_t>(parts) * (ranks - 1), 0};
  }
  std::vector<std::vector<Range>> parts;
  std::vector<int> nodes_of_group;
  for (const int rank : summing_ranks(plan.mesh, coord, view)) {
    const Range held = leaves_of(plan, coord_of(plan.mesh, rank), view);
    parts.push_back(tree_cover(leaves(plan, view), held));
    nodes_of_group.push_back(nodes[static_cast<size_t>(rank)]);
  }
  return shares_sent(leaves(plan, view), parts, nodes_of_group,
                     reduced_place(plan.mesh, coord, view));
}

// Adds the bytes that a rank sends for one bucket.
void add_bucket(const Plan& plan, const BucketSize& bucket, const SharesSent& sent,
                TrafficTable& sum) {
  const int64_t elements = bucket.elements;
  const ParamView view = bucket.view;
  const int64_t ranks = sum_ranks(plan.mesh, view), shards = state_shards(plan, view);
  const int64_t grad_bytes = elements * base::size_of(plan.recipe.grad);
  const int64_t param_bytes = elements * base::size_of(bucket.storage);
  const int64_t share_bytes = elements / ranks * base::size_of(sum_dtype(plan, view));
  sum.reduce_grads += reduce_rounds(plan) * sent.all * share_bytes;
  sum.reduce_network += reduce_rounds(plan) * sent.far * share_bytes;
  // To all ranks that update the same range.
  sum.gather_grads += (ranks / shards - 1) * (grad_bytes / ranks);
  const int64_t gathers = plan.zero.params && !plan.layout.keeps_params()
                              ? 2 * plan.schedule.microbatches
                          : plan.zero.optim ? 1
                                            : 0;
  sum.gather_params += gathers * (shards - 1) * (param_bytes / shards);
  if (shards > 1) sum.layer_state += (ranks - 1) * bucket.scales * int64_t{sizeof(float)};
}

}  // namespace

TrafficTable predict_traffic(const ModelSpec& model, const Plan& plan, const Coord& coord,
                             std::span<const int> nodes) {
  TrafficTable sum;
  std::array<SharesSent, all_views.size()> sent;
  for (const ParamView view : all_views) {
    sent[static_cast<size_t>(view)] = reduce_shares(plan, coord, view, nodes);
  }
  for (const BucketLayout& bucket : bucket_layouts(model, plan, coord[Axis::pp])) {
    add_bucket(plan, bucket.size(), sent[static_cast<size_t>(bucket.view)], sum);
  }
  for (const int layer : layers_of_rank(model, plan, coord[Axis::pp])) {
    sum.updates += muon_traffic(plan, coord, params_of(model, layer));
    sum.layer_state += state_traffic(state_of(model, layer, plan), plan);
  }
  sum.step_sums = (closing_ranks(plan.mesh) - 1) * step_record_bytes(plan.layers());
  const TensorTraffic tensor = predict_tensor_traffic(model, plan, coord[Axis::pp]);
  sum.tp_forward = tensor.forward;
  sum.tp_backward = tensor.backward;
  sum.tp_grads = tensor.grads;
  const ContextTraffic context = predict_context_traffic(model, plan, coord[Axis::pp]);
  sum.cp_forward = context.forward;
  sum.cp_backward = context.backward;
  const ExpertTraffic experts = predict_expert_traffic(model, plan, coord[Axis::pp]);
  sum.ep_forward = experts.forward;
  sum.ep_backward = experts.backward;
  const PipeTraffic pipe = predict_pipe_traffic(model, plan, coord[Axis::pp]);
  sum.pp_activations = pipe.activations;
  sum.pp_gradients = pipe.gradients;
  sum.pp_table = pipe.table;
  return sum;
}

TrafficTable operator+(const TrafficTable& a, const TrafficTable& b) {
  return a - (TrafficTable{} - b);
}

TrafficTable operator-(const TrafficTable& a, const TrafficTable& b) {
  return {.reduce_grads = a.reduce_grads - b.reduce_grads,
          .gather_grads = a.gather_grads - b.gather_grads,
          .gather_params = a.gather_params - b.gather_params,
          .step_sums = a.step_sums - b.step_sums,
          .updates = a.updates - b.updates,
          .layer_state = a.layer_state - b.layer_state,
          .tp_forward = a.tp_forward - b.tp_forward,
          .tp_backward = a.tp_backward - b.tp_backward,
          .tp_grads = a.tp_grads - b.tp_grads,
          .cp_forward = a.cp_forward - b.cp_forward,
          .cp_backward = a.cp_backward - b.cp_backward,
          .ep_forward = a.ep_forward - b.ep_forward,
          .ep_backward = a.ep_backward - b.ep_backward,
          .pp_activations = a.pp_activations - b.pp_activations,
          .pp_gradients = a.pp_gradients - b.pp_gradients,
          .pp_table = a.pp_table - b.pp_table,
          .other = a.other - b.other,
          .reduce_network = a.reduce_network - b.reduce_network};
}

}  // namespace trireme::spec
