// SPDX-License-Identifier: Apache-2.0
#include "plan/memory/engine_memory.h"

#include <algorithm>
#include <bit>

#include "plan/memory/rank_layers.h"
#include "schedule/lives.h"
#include "spec/context/context_traffic.h"
#include "spec/experts/expert_traffic.h"
#include "spec/memory/predict.h"
#include "spec/memory/stash_frames.h"
#include "spec/parallel/data_parallel.h"
#include "spec/parallel/tensor_parallel.h"
#include "spec/state/float8_state.h"
#include "spec/state/state_layout.h"

namespace trireme::plan {
namespace {

using spec::LayerStash;
using spec::MemoryTable;
using spec::Pool;

// A pass is one micro-batch on one stage. Longer schedules take too long to lay out completely.
constexpr int64_t max_placed_passes = int64_t{1} << 11;

spec::Plan plan_of(const Job& job, const Layout& l) {
  const spec::Workload work = workload_of(job);
  return spec::unscheduled_plan(job.model, work, filled(job, l), job.backend);
}

// Returns the bytes of a pool's largest live set. `inner` is the size of the slot (input or output
// gradient) that a layer has in this pool unless another stage produces it.
int64_t largest_set(const LiveSets& sets, int64_t block, int64_t other, int64_t head,
                    int64_t inner) {
  int64_t largest = 0;
  for (const LiveLayers& set : sets) {
    largest = std::max(
        largest, set.blocks * block + set.other * other + set.heads * head + set.inner * inner);
  }
  return largest;
}

void add_stash(const LayerCosts& costs, const RankLives& rank, MemoryTable& sum) {
  const LayerStash& block = stash_of(costs.block, rank);
  const LayerStash& other = stash_of(costs.other_block, rank);
  const LayerStash& head = stash_of(costs.head, rank);
  const auto pool = [&](Pool p, const LiveSets& sets, int64_t inner) {
    const size_t at = spec::index_of(p);
    return largest_set(sets, block.frame_bytes[at], other.frame_bytes[at], head.frame_bytes[at],
                       inner);
  };
  const int64_t x = block.frame_bytes[spec::index_of(Pool::inputs)];
  const int64_t dy = block.frame_bytes[spec::index_of(Pool::gradients)];
  sum.stash_inputs = rank.inputs * x;
  sum.stash_gradients = rank.gradients * dy;
  sum.stash_f_to_b = pool(Pool::f_to_b, rank.f_to_b, x);
  sum.stash_f_to_w = pool(Pool::f_to_w, rank.f_to_w, 0);
  // Pools that serve one layer at a time are as large as the largest layer needs.
  const auto one_layer = [&](int64_t LayerStash::*need) {
    return std::max({rank.blocks > 0 ? block.*need : 0, rank.other > 0 ? other.*need : 0,
                     rank.has_embedding ? stash_of(costs.embedding, rank).*need : 0,
                     rank.has_head ? head.*need : 0});
  };
  if (rank.is_merged) {
    sum.stash_b_to_w = one_layer(&LayerStash::merged_b_to_w);
    // Even and odd layers share one slot each; the last layer of a stage needs none.
    sum.stash_stream = std::min<int64_t>(rank.stage_layers - 1, 2) * dy;
  } else {
    sum.stash_b_to_w = pool(Pool::b_to_w, rank.b_to_w, dy);
  }
  const int64_t forward = one_layer(&LayerStash::recompute_forward);
  const int64_t backward = one_layer(&LayerStash::recompute_backward);
  sum.stash_recompute = rank.runs_pairs ? forward + backward : std::max(forward, backward);
}

}  // namespace

bool is_engine_layout(const Job& job, const Layout& l) {
  const auto& block = spec::typical_block(job.model);
  const bool has_rows = l.tp == 1 || l.sequence_parallel || !has_experts(job);
  // Memory of more than two kinds of blocks is not counted exactly (block_kinds.h).
  const bool has_two_kinds = !spec::is_fp8(l.precision) || dense_block(job.model) == nullptr;
  return has_rows && block.kv_heads % l.tp == 0 && l.precision != Precision::fp4 && has_two_kinds;
}

void add_engine_buffers(const Job& job, const Layout& l, LayerCosts& costs) {
  const spec::Plan plan = plan_of(job, l);
  costs.staging = spec::staging_bytes(local_shape_of(plan), plan.keeps_losses);
  costs.axis_buffers = base::bytes_of(tensor_buffer(job.model, plan)) +
                       base::bytes_of(context_buffer(job.model, plan)) +
                       base::bytes_of(context_reports(plan));
}

size_t EngineMemory::StateKeyHash::operator()(const StateKey& key) const {
  size_t h = std::hash<std::vector<bool>>()(key.second);
  for (const int64_t field : key.first) h = h * 1000003U + static_cast<size_t>(field);
  return h;
}

// Parameters, gradients, optimizer state, and the buffers along the data axes.
const MemoryTable& EngineMemory::state_of(const Layout& l, const LayerCosts& costs,
                                          const RankLives& rank) {
  const bool is_one_stage = l.pp * l.chunks == 1;
  const bool has_several = micro_batches(job_, l) > 1;
  const std::array<int64_t, 23> fields{
      l.tp,
      l.cp,
      l.dp_replicate,
      l.dp_shard,
      l.zero_stage,
      l.pp,
      l.logical_dp,
      l.prefetch,
      static_cast<int>(l.precision),
      static_cast<int>(l.grad_dtype),
      static_cast<int>(l.optimizer),
      static_cast<int>(l.master_dtype),
      static_cast<int>(l.reduce_dtype),
      static_cast<int>(l.reduce),
      static_cast<int>(l.reshard),
      rank.blocks,
      (is_one_stage ? 4 : 0) + (rank.has_embedding ? 2 : 0) + (rank.has_head ? 1 : 0),
      has_several ? 1 : 0,
      is_routed_ ? l.ep : 1,
      is_routed_ ? l.etp : 1,
      is_routed_ ? 2 * l.micro_batch + (l.sequence_parallel ? 1 : 0) : 0,
      is_routed_ ? std::bit_cast<int64_t>(l.row_budget) : 0,
      costs.block.has_float8 ? 1 : 0};
  const auto [found, is_new] = states_.try_emplace({fields, rank.is_other});
  MemoryTable& sum = found->second;
  if (!is_new) return sum;
  const spec::Plan plan = plan_of(job_, l);
  const auto add_state = [&](int layer, const LayerCost& cost, MemoryTable& to) {
    std::vector<spec::StateTensor> state = spec::state_of(job_.model, layer, plan);
    for (const spec::BucketLayout& bucket : buckets_of(cost, l)) {
      spec::add_state(plan, state, bucket, to);
      // Own tensors of the layer are part of its first bucket.
      std::erase_if(state, [](const spec::StateTensor& tensor) { return tensor.is_own(); });
    }
  };
  sum.optim = bytes_of(spec::step_memory(plan));
  int64_t float8_blocks = 0;
  const BlockKinds kinds = block_kinds(job_, stack_, l);
  const auto add_blocks = [&](int64_t count, const BlockKind& kind, const LayerCost& cost) {
    if (count == 0) return;
    MemoryTable block;
    add_state(kind.layer, cost, block);
    sum.params += count * block.params;
    sum.grads += count * block.grads;
    sum.optim += count * block.optim;
    if (cost.has_float8) float8_blocks += count;
  };
  add_blocks(rank.blocks, kinds.main, costs.block);
  add_blocks(rank.other, kinds.other, costs.other_block);
  sum.optim += base::bytes_of(spec::numerics_spec(float8_blocks)) +
               base::bytes_of(spec::delayed_amax_spec(plan.recipe, float8_blocks));
  if (rank.has_embedding) add_state(0, costs.embedding, sum);
  if (rank.has_head) {
    add_state(static_cast<int>(job_.model.layers.size()) - 1, costs.head, sum);
    sum.grads += base::bytes_of({{costs.head.tied_elements}, plan.recipe.grad});
  }
  if (rank.blocks + rank.other > 0) {
    sum.params += base::bytes_of(rope_table_spec(job_.model, job_.seq_len));
  }
  const bool reads_first = costs.head.tied_elements > 0 && is_one_stage;
  const std::vector<spec::BucketLayout> buckets = buckets_of(costs, rank, l);
  for (const base::TensorSpec& scales : spec::weight_scale_specs(buckets)) {
    sum.params += base::bytes_of(scales);
    sum.optim += base::bytes_of(scales);
  }
  sum.comm = bytes_of(spec::data_buffers(plan, buckets, reads_first)) +
             base::bytes_of(spec::expert_buffer(job_.model, plan));
  return sum;
}

MemoryTable EngineMemory::memory_of(const Layout& l, const LayerCosts& costs, const PipeLives& pipe,
                                    const RankLives& rank) {
  MemoryTable sum = state_of(l, costs, rank);
  add_stash(costs, rank, sum);
  const int64_t m = micro_batches(job_, l);
  sum.staging = m * costs.staging.by_microbatch + costs.staging.once;
  // Muon also needs the momentum of a whole bucket, with its padding.
  const auto scratch_of = [&l](int64_t count, const LayerCost& block) -> int64_t {
    if (count == 0) return 0;
    const bool is_muon = l.optimizer == spec::OptimizerKind::muon && block.muon_bytes > 0;
    const int64_t momentum =
        is_muon ? base::bytes_of({{dense_elements(block, l)}, base::DType::f32}) : 0;
    return std::max(block.scratch_bytes, is_muon ? block.muon_bytes + momentum : 0);
  };
  sum.scratch =
      std::max({scratch_of(rank.blocks, costs.block), scratch_of(rank.other, costs.other_block),
                rank.has_embedding ? costs.embedding.scratch_bytes : 0,
                rank.has_head ? costs.head.scratch_bytes : 0}) +
      base::bytes_of(stream_workspace_spec(job_.backend));
  sum.comm += costs.axis_buffers;
  if (l.pp == 1) {
    if (m == 1 && l.chunks == 1) sum.grads -= grads_in_stash(plan_of(job_, l), costs, rank, l);
    return sum;
  }
  sum.comm += rank.channels * l.send_buffers *
              stash_of(costs.block, rank).frame_bytes[spec::index_of(Pool::inputs)];
  if (costs.head.tied_elements > 0 && pipe.splits_ends) {
    // spec/parallel/pipeline_parallel.h: the head's rank has a copy of the table, and sends its
    // gradients.
    const spec::Recipe recipe = recipe_of(stack_, l.precision, l.grad_dtype);
    const int64_t grads = base::bytes_of({{costs.head.tied_elements}, recipe.grad});
    if (rank.has_embedding) sum.comm += grads;
    if (rank.has_head) {
      sum.params += base::bytes_of({{costs.head.tied_elements}, recipe.storage});
      const bool is_staged = m > 1 && (l.reduce == spec::ReduceWhen::each || l.shards_grads());
      if (is_staged) sum.comm += pipe.ends_ahead * grads;
    }
  }
  return sum;
}

// Frames are placed in the order of the program. Interleaved programs begin with the same actions
// for any number of micro-batches, so that more micro-batches never need less.
int64_t EngineMemory::gaps_of(const Layout& l, const LayerCosts& costs, const StageBlocks& cut,
                              const RankLives& rank) {
  if (l.chunks == 1) return 0;  // frames of one size
  int64_t m = micro_batches(job_, l);
  if (int64_t{l.pp} * l.chunks * m > max_placed_passes) {
    if (l.schedule != Kind::interleaved) return 0;
    m = settled_micro_batches(l, m);
  }
  const auto [found, is_new] =
      gaps_.try_emplace({&costs, m, l.pp, l.chunks, l.schedule, rank.rank}, 0);
  if (!is_new) return found->second;
  const schedule::Schedule& schedule = lives_.written(l, m);
  spec::StashLayout layout;
  layout.is_merged = rank.is_merged;
  std::vector<spec::StashStage> stages;
  for (const int number : schedule::stages_of(schedule, rank.rank)) {
    stages.push_back({number, {}, {}});
    layout.stages.push_back(frames_of(costs, rank, cut, number));
  }
  spec::place_frames(layout, stages, schedule, rank.rank);
  return found->second = layout.gap_bytes();
}

int64_t EngineMemory::bytes_at_least(const Layout& l, const LayerCosts& costs,
                                     const StageBlocks& cut) {
  const PipeLives& pipe = lives_.find(l, micro_batches(job_, l), cut);
  int64_t max_bytes = 0;
  for (const RankLives& rank : pipe.ranks) {
    max_bytes =
        std::max(max_bytes, memory_of(l, costs, pipe, rank).total() + gaps_of(l, costs, cut, rank));
  }
  return max_bytes;
}

MemoryTable EngineMemory::largest(const Layout& l, const LayerCosts& costs,
                                  const StageBlocks& cut) {
  const PipeLives& pipe = lives_.find(l, micro_batches(job_, l), cut);
  MemoryTable max_table;
  for (const RankLives& rank : pipe.ranks) {
    const MemoryTable own = memory_of(l, costs, pipe, rank);
    if (own.total() > max_table.total()) max_table = own;
  }
  return max_table;
}

}  // namespace trireme::plan
