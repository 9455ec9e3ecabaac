// SPDX-License-Identifier: Apache-2.0
#include "plan/price/layer_cost.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "plan/context/context_cost.h"
#include "plan/price/expert_cost.h"
#include "plan/price/op_sum.h"
#include "spec/context/context_parallel.h"
#include "spec/experts/expert_rows.h"
#include "spec/facts/facts.h"
#include "spec/memory/predict.h"
#include "spec/parallel/bucket.h"
#include "spec/plan.h"
#include "spec/state/muon.h"

namespace trireme::plan {
namespace {

using spec::Axis;
using spec::Facts;
using spec::OpCost;

spec::LocalShape shape_of(const Job& job, const Stack& stack, const LayerKey& key) {
  spec::LocalShape shape;
  shape.sequences = key.micro_batch;
  shape.seq_len = job.seq_len;
  shape.tokens = shape.sequences * shape.seq_len / key.cp;
  shape.head_chunk_rows = shape.tokens;
  shape.ffn_rows = key.ffn_rows;
  shape.has_documents = job.document_mask;
  shape.mesh[Axis::tp] = key.tp;
  shape.mesh[Axis::cp] = key.cp;
  shape.mesh[Axis::ep] = key.ep;
  shape.mesh[Axis::etp] = key.etp;
  // Other programs exchange the rows that there are.
  shape.row_budget = stack.is_engine() ? key.row_budget : 1;
  shape.expert_capacity = key.expert_capacity;
  shape.sequence_parallel = key.sequence_parallel && key.tp > 1;
  shape.ulysses = key.ulysses;
  shape.slices = key.context_slices;
  shape.is_ring = spec::has_ring(key.context_kind);
  return shape;
}

// Returns the buckets of a layer without entries, and counts the parameters that are codes.
void add_buckets(const Pricing& p, const spec::ModelSpec& model, int layer, LayerCost& cost) {
  cost.buckets = spec::layer_buckets(model, layer, p.recipe, p.shape.mesh);
  for (spec::BucketLayout& bucket : cost.buckets) {
    if (bucket.has_codes()) {
      double& codes =
          bucket.view == spec::ParamView::expert ? cost.expert_code_params : cost.code_params;
      for (const spec::BucketEntry& entry : bucket.entries)
        codes += static_cast<double>(entry.elements);
    }
    bucket.entries.clear();
    bucket.first_scale.clear();
    bucket.zeroed.clear();
  }
}

double elements_of(const Facts& facts, const spec::Sizes& mesh, spec::ParamView view) {
  double elements = 0;
  for (const spec::Param& param : facts.params) {
    if (param.tied_copy || param.shard.shape.empty() || param.view != view) continue;
    elements += static_cast<double>(spec::local_elements(param.shard, mesh));
  }
  return elements;
}

// Returns whether W reads the slot, or the slot that B stores in its place.
bool is_until_w(const std::vector<spec::Slot>& slots, size_t index) {
  if (slots[index].life == spec::Life::f_to_w) return true;
  return std::ranges::any_of(
      slots, [index](const spec::Slot& slot) { return slot.replaces == static_cast<int>(index); });
}

int64_t largest_scratch(const Facts& facts) {
  int64_t largest = 0;
  for (const spec::ScratchSet& set : facts.scratch) {
    largest = std::max(largest, spec::bytes_of(set));
  }
  return largest;
}

// Adds the bytes of the pools of spec/memory/stash_layout.h.
void add_slots(const Pricing& p, const Facts& facts, LayerCost& cost) {
  for (size_t i = 0; i < facts.stash.size(); ++i) {
    const spec::Slot& slot = facts.stash[i];
    if (slot.spec.shape.ndim() == 0 || slot.replaces >= 0) continue;
    const auto bytes = static_cast<double>(base::bytes_of(slot.spec));
    const double kept = bytes;
    const bool until_w = is_until_w(facts.stash, i);
    if (slot.life == spec::Life::b_to_w) {
      cost.kept_from_b += kept;
      (static_cast<int>(i) == spec::slot_dy ? cost.output_gradient : cost.made_by_b) += bytes;
    } else if (spec::is_kept(slot, static_cast<int>(i), p.key.recompute)) {
      (until_w ? cost.kept_for_w : cost.kept_for_b) += kept;
    } else {
      cost.dropped += bytes;
      if (until_w) cost.kept_from_b += kept;  // recomputed by B
      if (!until_w) cost.dropped_backward += bytes;
    }
  }
  cost.scratch = static_cast<double>(largest_scratch(facts));
}

// Fills in the sizes for EngineMemory.
void add_engine_bytes(const Pricing& p, const Facts& facts, spec::Recompute recompute,
                      LayerCost& cost) {
  const spec::LayerPlace apart{.is_first = true, .gets_gradient = true};
  cost.merged_stash = spec::layer_stash(facts.stash, recompute, apart, true);
  cost.split_stash = spec::layer_stash(facts.stash, recompute, apart, false);
  cost.scratch_bytes = largest_scratch(facts);
  const spec::BucketLayout bucket = spec::bucket_layout(facts.params, p.shape.mesh);
  const std::vector<spec::MuonMatrix> matrices =
      spec::muon_matrices(facts.params, bucket, p.shape.mesh);
  if (!matrices.empty()) {
    const spec::ScratchSet muon = spec::muon_scratch(matrices, bucket);
    cost.muon_bytes = bytes_of(muon) - base::bytes_of(muon.tensors.front());
    for (const spec::MuonMatrix& matrix : matrices) {
      cost.muon_flops += spec::iteration_flops(matrix);
      cost.largest_muon_flops = std::max(cost.largest_muon_flops, spec::iteration_flops(matrix));
    }
  }
  cost.tied_elements = spec::tied_elements(facts.params, p.shape.mesh);
}

// Returns the fraction of a block's matrix products that is recomputed if every second one is kept:
// the projections of keys, of attention's output, and up.
double recomputed_products(const spec::BlockSpec& block) {
  const double width = static_cast<double>(block.width);
  const double inner = static_cast<double>(block.heads * block.head_dim);
  const double key = static_cast<double>(block.kv_heads * block.head_dim);
  // With experts, those of a token together.
  const int64_t columns =
      block.moe ? block.moe->router.chosen * block.moe->ffn + block.moe->shared_ffn : block.ffn;
  const double ffn = static_cast<double>(columns);
  const bool is_gated = block.activation == spec::Activation::swiglu;
  const double feed_forward = width * (is_gated ? 3 : 2) * ffn;
  const double all = width * (inner + 2 * key) + inner * width + feed_forward;
  return (width * key + inner * width + width * ffn) / all;
}

// Replaces Trireme's recompute by that of another program. `f` is the sum of the forward.
void set_recompute_of_stack(const Pricing& p, const OpSum& f, const spec::BlockSpec* block,
                            LayerCost& cost) {
  const double factor = p.machine.step_factor;
  if (p.key.recompute == spec::Recompute::full && p.stack.full_recompute_is_whole) {
    cost.r = cost.f;
    cost.r_tp = cost.f_tp;
    cost.r_ep = cost.f_ep;
    cost.r_kernels = cost.f_kernels;
    cost.r_flops = f.flops;
  }
  if (p.key.recompute == spec::Recompute::selective &&
      p.stack.selective == spec::SelectiveRecompute::attention) {
    cost.r = f.attention * factor;
    cost.r_tp = cost.r_ep = 0;
    cost.r_kernels = 4;
    cost.r_flops = 0;
  }
  if (p.key.recompute == spec::Recompute::selective &&
      p.stack.selective == spec::SelectiveRecompute::products && block != nullptr) {
    const double recomputed = recomputed_products(*block);
    cost.r = (f.seconds - f.attention - (1 - recomputed) * f.products) * factor;
    cost.r_tp = cost.f_tp / 2;  // results of reductions are kept, gathered inputs are not
    cost.r_ep = 0;              // results of exchanges are kept
    cost.r_kernels = cost.f_kernels;
    cost.r_flops = recomputed * f.product_flops;
  }
}

// Adds exposed transfers along cp. `f` and `b` are the sums of forward and input gradient.
void add_context(const Pricing& p, const Facts& facts, const OpSum& f, const OpSum& b,
                 LayerCost& cost) {
  if (p.key.cp == 1 || f.attention <= 0) return;
  const auto exposed = [&](const std::vector<spec::CommCost>& comms, double compute) {
    return context_seconds(p.machine, p.stack, p.key, comms, compute,
                           sums_in_fixed_order(p.job, p.stack));
  };
  const bool is_whole = p.key.recompute == spec::Recompute::full && p.stack.full_recompute_is_whole;
  cost.f_cp = exposed(facts.f_comm, f.attention);
  cost.b_cp =
      exposed(facts.b_comm, b.attention) + (is_whole ? cost.f_cp : exposed(facts.r_comm, 0));
}

// `block` is the block on one rank, or null for another layer.
LayerCost cost_of(const Pricing& p, const Facts& facts, const spec::BlockSpec* block = nullptr,
                  spec::Recompute recompute = spec::Recompute::none) {
  spec::AttentionShape attention;
  if (block != nullptr) attention = spec::attention_shape(*block, p.shape, p.recipe.storage);
  LayerCost cost;
  const OpSum f = sum_of(p, facts.f, attention, Pass::forward),
              b = sum_of(p, facts.b, attention, Pass::input_gradient),
              w = sum_of(p, facts.w, attention, Pass::weight_gradient),
              r = sum_of(p, facts.r, attention, Pass::forward);
  const double factor = p.machine.step_factor;
  cost.f = f.seconds * factor;
  cost.b = b.seconds * factor;
  cost.w = w.seconds * factor;
  cost.r = r.seconds * factor;
  cost.f_kernels = f.kernels;
  cost.b_kernels = b.kernels + w.kernels;
  cost.r_kernels = r.kernels;
  cost.flops = f.flops + b.flops + w.flops - facts.b_recomputed_flops;
  cost.r_flops = r.flops + facts.b_recomputed_flops;
  cost.f_tp = tp_seconds(p, facts.f_comm);
  cost.b_tp = tp_seconds(p, facts.b_comm) + tp_seconds(p, facts.w_comm);
  cost.r_tp = tp_seconds(p, facts.r_comm);
  if (p.moe != nullptr) {
    const auto exchanges = [&p](const std::vector<spec::CommCost>& comms) {
      return expert_seconds(p.job, p.machine, p.stack, *p.moe, p.key, comms);
    };
    cost.f_ep = exchanges(facts.f_comm);
    cost.b_ep = exchanges(facts.b_comm) + exchanges(facts.w_comm);
    cost.r_ep = exchanges(facts.r_comm);
  }
  set_recompute_of_stack(p, f, block, cost);
  cost.params = elements_of(facts, p.shape.mesh, spec::ParamView::dense);
  cost.expert_params = elements_of(facts, p.shape.mesh, spec::ParamView::expert);
  add_slots(p, facts, cost);
  if (p.stack.is_engine()) add_engine_bytes(p, facts, recompute, cost);
  add_context(p, facts, f, b, cost);
  cost.input = static_cast<double>(base::bytes_of(facts.stash[spec::slot_x].spec));
  return cost;
}

spec::Recipe key_recipe(const Stack& stack, const LayerKey& key) {
  spec::Recipe recipe = recipe_of(stack, key.precision, key.grad_dtype);
  recipe.first_blocks = key.bf16_first;
  recipe.last_blocks = key.bf16_last;
  recipe.other_blocks = key.bf16_blocks;
  return recipe;
}

Pricing pricing_of(const Job& job, const spec::Machine& machine, const Stack& stack,
                   const LayerKey& key) {
  Pricing p{job,
            machine,
            stack,
            key,
            shape_of(job, stack, key),
            key_recipe(stack, key),
            stack.streaming,
            key.precision,
            nullptr};
  if (stack.is_engine()) p.shape.expert_grain = spec::expert_grain(p.recipe);
  return p;
}

Facts facts_of(const Pricing& p, const spec::ModelSpec& model, int layer,
               spec::Recompute recompute) {
  return spec::facts(model, layer, p.shape, p.recipe, recompute, backend_of(p.job, p.stack));
}

// Returns the FLOPs of all ranks along tp, by which spec::solve() balances stages; 0 if the stack
// cuts stages in equal shares.
double whole_flops(Pricing p, const spec::ModelSpec& model, int layer, spec::Recompute recompute) {
  if (p.stack.even_cut) return 0;
  p.shape.mesh = {};
  p.shape.sequence_parallel = false;
  p.shape.tokens = p.shape.sequences * p.shape.seq_len;
  p.shape.ulysses = 1;
  const Facts facts = facts_of(p, model, layer, recompute);
  double flops = 0;
  for (const auto* ops : {&facts.f, &facts.b, &facts.w, &facts.r}) {
    for (const OpCost& op : *ops) flops += op.flops;
  }
  return flops;
}

}  // namespace

LayerKey layer_key(const Job& job, const Layout& l) {
  LayerKey key{.tp = l.tp,
               .cp = l.cp,
               .micro_batch = l.micro_batch,
               .recompute = l.recompute,
               .sequence_parallel = l.sequence_parallel && l.tp > 1,
               .precision = l.precision,
               .grad_dtype = l.grad_dtype,
               .recompute_blocks = l.recompute == spec::Recompute::none ? -1 : l.recompute_blocks,
               .context_kind = l.context_kind,
               .context_slices = l.context_slices,
               .ulysses = std::max(l.ulysses, 1),
               .ffn_rows = l.ffn_rows,
               .head_chunk_rows = l.head_chunk_rows};
  if (spec::is_fp8(l.precision)) {
    key.bf16_first = l.bf16_first;
    key.bf16_last = l.bf16_last;
    key.bf16_blocks = l.bf16_blocks;
  }
  if (!has_experts(job)) return key;
  key.ep = l.ep;
  key.etp = l.etp;
  key.row_budget = l.row_budget;
  key.expert_capacity = l.expert_capacity;
  // Ranks along tp and cp are always neighbours.
  const bool is_inside = int64_t{l.ep} * l.etp <= int64_t{l.tp} * l.cp;
  if (l.placement == Placement::pp_inside && !is_inside) key.stages_between = l.pp;
  return key;
}

size_t LayerKeyHash::operator()(const LayerKey& k) const {
  uint64_t h = static_cast<uint64_t>(k.micro_batch) + 31 * static_cast<uint64_t>(k.ffn_rows) +
               961 * static_cast<uint64_t>(k.head_chunk_rows);
  for (const int value :
       {k.tp, k.cp, k.ep, static_cast<int>(k.recompute), static_cast<int>(k.sequence_parallel),
        static_cast<int>(k.precision), static_cast<int>(k.grad_dtype), k.recompute_blocks,
        static_cast<int>(k.context_kind), static_cast<int>(k.context_slices), k.ulysses, k.etp,
        k.stages_between, k.bf16_first, k.bf16_last}) {
    h = h * 1000003U + static_cast<uint64_t>(value);
  }
  return h;
}

LayerCost block_cost(const Job& job, const spec::Machine& machine, const Stack& stack,
                     const LayerKey& key, const BlockKind& kind) {
  Pricing p = pricing_of(job, machine, stack, key);
  // The recipe of a model of one block.
  p.recipe.first_blocks = kind.has_float8 ? 0 : 1;
  p.recipe.last_blocks = 0;
  p.recipe.other_blocks.clear();
  const auto& of_model =
      std::get<spec::BlockSpec>(job.model.layers[static_cast<size_t>(kind.layer)]);
  spec::BlockSpec block = of_model;
  // If tp exceeds the key and value heads, each rank has a copy of one.
  if (block.kv_heads % key.tp != 0 && key.tp % block.kv_heads == 0) block.kv_heads = key.tp;
  if (of_model.moe) p.moe = &*of_model.moe;
  const spec::ModelSpec model{job.model.name,
                              job.model.max_seq,
                              job.model.init_std,
                              {job.model.layers.front(), block, job.model.layers.back()}};
  const spec::BlockSpec local = spec::local_block(block, p.shape.mesh);
  LayerCost cost = cost_of(p, facts_of(p, model, 1, key.recompute), &local, key.recompute);
  cost.has_float8 = kind.has_float8;
  if (stack.is_engine()) add_buckets(p, model, 1, cost);
  cost.cut_flops = whole_flops(p, model, 1, key.recompute);
  return cost;
}

LayerCost embedding_cost(const Job& job, const spec::Machine& machine, const Stack& stack,
                         const LayerKey& key) {
  Pricing p = pricing_of(job, machine, stack, key);
  p.streaming = stack.head_streaming;
  LayerCost cost = cost_of(p, facts_of(p, job.model, 0, spec::Recompute::none));
  if (stack.is_engine()) add_buckets(p, job.model, 0, cost);
  cost.cut_flops = whole_flops(p, job.model, 0, spec::Recompute::none);
  return cost;
}

LayerCost head_cost(const Job& job, const spec::Machine& machine, const Stack& stack,
                    const LayerKey& key) {
  Pricing p = pricing_of(job, machine, stack, key);
  p.streaming = stack.head_streaming;
  p.products = key.precision == Precision::fp32 ? Precision::fp32 : Precision::bf16;
  const auto layer = static_cast<int>(job.model.layers.size()) - 1;
  LayerCost cost = cost_of(p, facts_of(p, job.model, layer, spec::Recompute::none));
  cost.cut_flops = whole_flops(p, job.model, layer, spec::Recompute::none);
  if (stack.is_engine()) {
    add_buckets(p, job.model, layer, cost);
    // The engine computes logits in chunks of rows, which cost the same per row.
    const auto& head = std::get<spec::HeadSpec>(job.model.layers.back());
    p.shape.head_chunk_rows = key.head_chunk_rows > 0
                                  ? key.head_chunk_rows
                                  : spec::default_head_chunk(job.backend, p.recipe.storage,
                                                             head.vocab / key.tp, p.shape.tokens);
    cost.scratch_bytes = largest_scratch(facts_of(p, job.model, layer, spec::Recompute::none));
    cost.scratch = static_cast<double>(cost.scratch_bytes);
  }
  return cost;
}

}  // namespace trireme::plan
