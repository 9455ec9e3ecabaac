// SPDX-License-Identifier: Apache-2.0
#include "spec/parallel/data_parallel.h"

#include <algorithm>

#include "base/check.h"
#include "spec/context/context_traffic.h"
#include "spec/parallel/pipeline_parallel.h"
#include "spec/parallel/sum_tree.h"
#include "spec/parallel/tensor_parallel.h"
#include "spec/state/muon.h"
#include "spec/state/state_layout.h"

namespace trireme::spec {
namespace {

const MeshView dense = mesh_view(ParamView::dense);

// Larger buckets are summed in several rounds of exchange.
constexpr int64_t max_received_bytes = int64_t{64} << 20;
constexpr int64_t min_bytes_a_part = 256;  // comm::Communicator::set_buffer

int64_t largest_bucket(std::span<const int64_t> buckets, size_t first, size_t step) {
  int64_t largest = 0;
  for (size_t b = first; b < buckets.size(); b += step) largest = std::max(largest, buckets[b]);
  return largest;
}

// Returns the nodes that all ranks together contribute to a sum.
int64_t parts_of_all(const Plan& plan) {
  const int ranks = sum_ranks(plan.mesh);
  if (leaves(plan) == ranks) return ranks;  // one leaf per rank
  int64_t parts = 0;
  for (int rank = 0; rank < ranks; ++rank) {
    parts += static_cast<int64_t>(
        tree_cover(leaves(plan), leaves_of_rank(leaves(plan), ranks, rank)).size());
  }
  return parts;
}

}  // namespace

int data_ranks(const Sizes& sizes) { return sizes[Axis::dp] * sizes[Axis::zero]; }

int sum_ranks(const Sizes& sizes) { return dense.ranks(sizes); }

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

base::DType sum_dtype(const Plan& plan) {
  return leaves(plan) > 1 && plan.layout.reduce_dtype == base::DType::bf16 ? base::DType::bf16
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

int64_t leaves(const Plan& plan) { return int64_t{plan.layout.logical_dp} * plan.mesh[Axis::cp]; }

Range leaves_of(const Plan& plan, const Coord& coord) {
  const int rank = coord[Axis::cp] * data_ranks(plan.mesh) + data_rank(plan.mesh, coord);
  return leaves_of_rank(leaves(plan), sum_ranks(plan.mesh), rank);
}

int node_buffers(const Plan& plan) {
  const int ranks = sum_ranks(plan.mesh);
  if (leaves(plan) == ranks) return 0;  // one leaf per rank
  int max = 0;
  for (int rank = 0; rank < ranks; ++rank) {
    for (const Fold& fold : folds(leaves(plan), leaves_of_rank(leaves(plan), ranks, rank))) {
      max = std::max(max, fold.stacked);
    }
  }
  return max;
}

std::vector<BucketKey> bucket_keys(const ModelSpec& model, const Plan& plan, int pp_rank) {
  std::vector<BucketKey> keys;
  for (const int layer : layers_of_rank(model, plan, pp_rank)) {
    for (const ParamView view : views_of(params_of(model, layer))) keys.push_back({layer, view});
  }
  return keys;
}

std::vector<BucketLayout> bucket_layouts(const ModelSpec& model, const Plan& plan, int pp_rank) {
  std::vector<BucketLayout> layouts;
  for (const BucketKey& key : bucket_keys(model, plan, pp_rank)) {
    layouts.push_back(bucket_layout(params_of(model, key.layer), plan.mesh, key.view));
  }
  return layouts;
}

int state_shards(const Plan& plan) { return plan.zero.optim ? dense.shards(plan.mesh) : 1; }

Range updated_range(const Plan& plan, const Coord& coord, int64_t elements) {
  if (!plan.zero.optim) return {0, elements};
  const int64_t share = elements / state_shards(plan);
  const int64_t shard = dense.shard_of(plan.mesh, coord);
  return {shard * share, (shard + 1) * share};
}

Range reduced_range(const Plan& plan, const Coord& coord, int64_t elements) {
  const int64_t share = elements / sum_ranks(plan.mesh);
  const int64_t place = reduced_place(plan.mesh, coord);
  return {place * share, (place + 1) * share};
}

int reduced_place(const Sizes& sizes, const Coord& coord) {
  return dense.shard_of(sizes, coord) * dense.replicas(sizes) + dense.replica_of(sizes, coord);
}

int DataBuffers::gather_slot(int bucket) const {
  const auto slots = static_cast<int>(gathered.size());
  if (!is_tied) return bucket % slots;
  return bucket == 0 ? 0 : 1 + (bucket - 1) % (slots - 1);
}

DataBuffers data_buffers(const Plan& plan, std::span<const BucketLayout> buckets, bool is_tied) {
  std::vector<int64_t> elements;
  for (const BucketLayout& bucket : buckets) elements.push_back(bucket.elements);
  return data_buffers(plan, elements, is_tied);
}

DataBuffers data_buffers(const Plan& plan, std::span<const int64_t> buckets, bool is_tied) {
  DataBuffers all;
  all.is_tied = is_tied;
  const int ranks = sum_ranks(plan.mesh);
  const int64_t largest = largest_bucket(buckets, 0, 1);
  const base::DType sums = sum_dtype(plan);
  if (ranks > 1) {
    const int64_t parts = parts_of_all(plan);
    const int64_t wanted = parts * (largest / ranks) * base::size_of(sums);
    all.received = {{std::max(parts * min_bytes_a_part, std::min(wanted, max_received_bytes))},
                    base::DType::u8};
  }
  if (const int64_t closing = closing_ranks(plan.mesh); closing > 1) {
    all.step_sums = {{closing, step_sums_bytes}, base::DType::u8};
  }
  if (sums != plan.recipe.grad) all.rounded = {{largest}, sums};
  if (plan.zero.grads) {
    for (const size_t i : {0U, 1U}) {
      all.work.push_back({{largest_bucket(buckets, i, 2)}, plan.recipe.grad});
    }
  }
  if (plan.zero.params) {
    const size_t others = buckets.size() - (is_tied ? 1U : 0U);
    const size_t slots = plan.layout.keeps_params()
                             ? others
                             : std::min(static_cast<size_t>(plan.layout.prefetch) + 1, others);
    if (is_tied) all.gathered.push_back({{buckets.front()}, plan.recipe.storage});
    for (size_t i = 0; i < slots; ++i) {
      all.gathered.push_back(
          {{largest_bucket(buckets, i + (is_tied ? 1U : 0U), slots)}, plan.recipe.storage});
    }
  }
  return all;
}

int64_t bytes_of(const DataBuffers& buffers) {
  int64_t bytes = base::bytes_of(buffers.received) + base::bytes_of(buffers.rounded) +
                  base::bytes_of(buffers.step_sums);
  for (const base::TensorSpec& spec : buffers.work) bytes += base::bytes_of(spec);
  for (const base::TensorSpec& spec : buffers.gathered) bytes += base::bytes_of(spec);
  return bytes;
}

bool is_tied(const ModelSpec& model) {
  const std::vector<Param> head = params_of(model, static_cast<int>(model.layers.size()) - 1);
  return std::any_of(head.begin(), head.end(), [](const Param& param) { return param.tied_copy; });
}

GradSpecs grad_specs(const Plan& plan, const BucketLayout& bucket) {
  return grad_specs(plan, bucket.elements);
}

GradSpecs grad_specs(const Plan& plan, int64_t elements) {
  GradSpecs specs;
  if (plan.inference) return specs;
  const base::DType grad = plan.recipe.grad;
  specs.nodes.assign(static_cast<size_t>(node_buffers(plan)), {{elements}, sum_dtype(plan)});
  if (plan.zero.grads) {
    specs.shard = {{elements / state_shards(plan)}, grad};
    return specs;
  }
  specs.leaf = {{elements}, grad};
  if (reduce_rounds(plan) > 1) {
    specs.round_sum = {{elements / sum_ranks(plan.mesh)}, grad};
  }
  return specs;
}

TrafficTable predict_traffic(const ModelSpec& model, const Plan& plan, const Coord& coord) {
  const int64_t ranks = sum_ranks(plan.mesh), shards = state_shards(plan);
  const auto parts = static_cast<int64_t>(tree_cover(leaves(plan), leaves_of(plan, coord)).size());
  TrafficTable sum;
  for (const BucketLayout& bucket : bucket_layouts(model, plan, coord[Axis::pp])) {
    const int64_t elements = bucket.elements;
    const int64_t grad_bytes = elements * base::size_of(plan.recipe.grad);
    const int64_t param_bytes = elements * base::size_of(plan.recipe.storage);
    sum.reduce_grads += reduce_rounds(plan) * parts * (ranks - 1) *
                        (elements / ranks * base::size_of(sum_dtype(plan)));
    // To all ranks that update the same range.
    sum.gather_grads += (ranks / shards - 1) * (grad_bytes / ranks);
    const int64_t gathers = plan.zero.params && !plan.layout.keeps_params()
                                ? 2 * plan.schedule.microbatches
                            : plan.zero.optim ? 1
                                              : 0;
    sum.gather_params += gathers * (shards - 1) * (param_bytes / shards);
  }
  for (const int layer : layers_of_rank(model, plan, coord[Axis::pp])) {
    sum.updates += muon_traffic(plan, coord, params_of(model, layer));
    sum.layer_state += state_traffic(state_of(model, layer, plan), plan.mesh);
  }
  sum.step_sums = (closing_ranks(plan.mesh) - 1) * step_sums_bytes;
  const TensorTraffic tensor = predict_tensor_traffic(model, plan, coord[Axis::pp]);
  sum.tp_forward = tensor.forward;
  sum.tp_backward = tensor.backward;
  sum.tp_grads = tensor.grads;
  const ContextTraffic context = predict_context_traffic(model, plan, coord[Axis::pp]);
  sum.cp_forward = context.forward;
  sum.cp_backward = context.backward;
  const PipeTraffic pipe = predict_pipe_traffic(model, plan, coord[Axis::pp]);
  sum.pp_activations = pipe.activations;
  sum.pp_gradients = pipe.gradients;
  sum.pp_table = pipe.table;
  return sum;
}

TrafficTable operator+(const TrafficTable& a, const TrafficTable& b) {
  return {.reduce_grads = a.reduce_grads + b.reduce_grads,
          .gather_grads = a.gather_grads + b.gather_grads,
          .gather_params = a.gather_params + b.gather_params,
          .step_sums = a.step_sums + b.step_sums,
          .updates = a.updates + b.updates,
          .layer_state = a.layer_state + b.layer_state,
          .tp_forward = a.tp_forward + b.tp_forward,
          .tp_backward = a.tp_backward + b.tp_backward,
          .tp_grads = a.tp_grads + b.tp_grads,
          .cp_forward = a.cp_forward + b.cp_forward,
          .cp_backward = a.cp_backward + b.cp_backward,
          .pp_activations = a.pp_activations + b.pp_activations,
          .pp_gradients = a.pp_gradients + b.pp_gradients,
          .pp_table = a.pp_table + b.pp_table,
          .other = a.other + b.other};
}

}  // namespace trireme::spec
