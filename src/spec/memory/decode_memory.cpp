// SPDX-License-Identifier: Apache-2.0
#include "spec/memory/decode_memory.h"

#include <algorithm>
#include <cmath>
#include <initializer_list>

#include "base/check.h"
#include "spec/facts/facts.h"
#include "spec/state/state_layout.h"

namespace trireme::spec {
namespace {

using base::DType;
using base::TensorSpec;

const EmbeddingSpec& embedding_of(const ModelSpec& model) {
  return std::get<EmbeddingSpec>(model.layers.front());
}

// The widths of the largest feed-forward that every token passes: of a dense block, or of shared
// experts. 0 without one.
struct FeedForwardWidths {
  int64_t up = 0, act = 0;
};
FeedForwardWidths feed_forward_widths(const ModelSpec& model) {
  FeedForwardWidths most;
  for (const LayerSpec& layer : model.layers) {
    const auto* block = std::get_if<BlockSpec>(&layer);
    if (block == nullptr) continue;
    const int64_t act = block->moe ? block->moe->shared_ffn : block->ffn;
    most.act = std::max(most.act, act);
    most.up = std::max(most.up, block->moe ? 2 * act : block->up_width());
  }
  return most;
}

// Returns the elements of experts' matrices that a step with so many tokens does not read, if all
// choices are equally likely.
int64_t elements_not_chosen(const ModelSpec& model, int64_t tokens) {
  double elements = 0;
  for (const LayerSpec& layer : model.layers) {
    const auto* block = std::get_if<BlockSpec>(&layer);
    if (block == nullptr || !block->moe) continue;
    const auto experts = static_cast<double>(block->moe->router.experts);
    const double others = 1 - static_cast<double>(block->moe->router.chosen) / experts;
    elements += experts * std::pow(others, static_cast<double>(tokens)) * 3 *
                static_cast<double>(block->width * block->moe->ffn);
  }
  return static_cast<int64_t>(elements);
}

int64_t arena_bytes(const TensorSpec& spec) {
  return spec.shape.ndim() == 0 ? 0 : base::bytes_of(spec);
}

}  // namespace

DecodeTensors decode_tensors(const ModelSpec& model, const DecodePlan& plan,
                             const Backend& backend) {
  const BlockSpec& b = typical_block(model);
  const int64_t T = plan.max_rows();
  const FeedForwardWidths ffn = feed_forward_widths(model);
  DecodeTensors t{
      .x = {{T, b.width}, plan.dtype},
      .h = {{T, b.width}, plan.dtype},
      .stats = {{T, norm_stats(b.norm)}, DType::f32},
      .qkv = {{T, b.qkv_width()}, plan.dtype},
      .qk_rstd = {},
      .o = {{T, b.heads * b.head_dim}, plan.dtype},
      .up = {},
      .act = {},
      .workspace = attention_cached_workspace(
          backend,
          {.rows = T, .heads = b.heads, .head_dim = b.head_dim, .max_length = plan.capacity}),
      .logits = {{plan.sequences, vocab_of(model)}, DType::f32}};
  if (ffn.act > 0) {
    t.up = {{T, ffn.up}, plan.dtype};
    t.act = {{T, ffn.act}, plan.dtype};
  }
  if (b.qk_norm) t.qk_rstd = {{T, b.qk_norm_whole ? 1 : b.heads + b.kv_heads}, DType::f32};
  return t;
}

ExpertRows decode_expert_rows(const MoeSpec& moe, int64_t tokens, const Backend& backend) {
  return expert_rows(moe, {.tokens = tokens, .seq_len = tokens, .mesh = {}}, backend);
}

DecodeExpertTensors decode_expert_tensors(const ModelSpec& model, const DecodePlan& plan,
                                          const Backend& backend) {
  const MoeSpec* moe = moe_of(model);
  if (moe == nullptr) return {};
  const ExpertRows r = decode_expert_rows(*moe, plan.max_rows(), backend);
  const int64_t T = r.tokens, E = r.experts, K = r.chosen, R = r.grouped, F = moe->ffn;
  return {.logits = {{T, E}, DType::f32},
          .choice = {{T, K}, DType::i32},
          .weights = {{T, K}, DType::f32},
          .place = {{T, K}, DType::i32},
          .pair = {{R}, DType::i32},
          .counts = {{E}, DType::i32},
          .starts = {{E + 1}, DType::i32},
          .row_weight = {{R}, DType::f32},
          .rows = {{R, typical_block(model).width}, plan.dtype},
          .up = {{R, 2 * F}, plan.dtype},
          .act = {{R, F}, plan.dtype}};
}

TensorSpec decode_inputs_spec(const DecodePlan& plan) {
  return {{decode_inputs, plan.max_rows()}, DType::i32};
}

TensorSpec decode_cache_spec(const BlockSpec& block, const DecodePlan& plan) {
  return {{plan.sequences * plan.capacity, 2 * block.kv_heads, block.head_dim}, plan.dtype};
}

std::vector<TensorSpec> decode_params(const ModelSpec& model, int layer, DType dtype) {
  std::vector<TensorSpec> specs;
  for (const Param& param : params_of(model, layer)) {
    const std::vector<int64_t>& shape = param.shard.shape;
    TensorSpec spec;
    if (!shape.empty() && !param.tied_copy) {
      spec.dtype = dtype;
      spec.shape = shape.size() == 3   ? base::Shape{shape[0], shape[1], shape[2]}
                   : shape.size() == 2 ? base::Shape{shape[0], shape[1]}
                                       : base::Shape{shape[0]};
    }
    specs.push_back(spec);
  }
  return specs;
}

std::vector<StateTensor> decode_state(const ModelSpec& model, int layer) {
  return inference_state(state_of(model, layer, {}, recipe_of(Precision::fp32)));
}

DecodeMemory decode_memory(const ModelSpec& model, const DecodePlan& plan, const Backend& backend) {
  TRIREME_CHECK(plan.sequences >= 1 && plan.prompt_rows >= 1 && plan.capacity >= 1 &&
                    plan.capacity <= model.max_seq,
                "{} sequences of {} tokens, {} rows", plan.sequences, plan.capacity,
                plan.prompt_rows);
  DecodeMemory m;
  for (int layer = 0; layer < static_cast<int>(model.layers.size()); ++layer) {
    for (const TensorSpec& spec : decode_params(model, layer, plan.dtype)) {
      m.params += arena_bytes(spec);
    }
    for (const StateTensor& tensor : decode_state(model, layer)) {
      m.params += arena_bytes(own_state_spec(tensor, {}));
    }
    const LayerSpec& at = model.layers[static_cast<size_t>(layer)];
    if (const auto* block = std::get_if<BlockSpec>(&at)) {
      m.cache += arena_bytes(decode_cache_spec(*block, plan));
    }
  }
  const DecodeTensors t = decode_tensors(model, plan, backend);
  const DecodeExpertTensors e = decode_expert_tensors(model, plan, backend);
  for (const TensorSpec& spec : {t.x,
                                 t.h,
                                 t.stats,
                                 t.qkv,
                                 t.qk_rstd,
                                 t.o,
                                 t.up,
                                 t.act,
                                 t.workspace,
                                 t.logits,
                                 e.logits,
                                 e.choice,
                                 e.weights,
                                 e.place,
                                 e.pair,
                                 e.counts,
                                 e.starts,
                                 e.row_weight,
                                 e.rows,
                                 e.up,
                                 e.act,
                                 stream_workspace_spec(backend),
                                 rope_table_spec(model, plan.capacity)}) {
    m.scratch += arena_bytes(spec);
  }
  m.staging = arena_bytes(decode_inputs_spec(plan));
  return m;
}

int64_t decode_step_bytes(const ModelSpec& model, const DecodePlan& plan, int64_t cached) {
  const EmbeddingSpec& embedding = embedding_of(model);
  const int64_t tables = embedding.positions * embedding.width +
                         (embedding.tied ? 0 : embedding.vocab * embedding.width);
  const int64_t weights =
      parameter_count(model) - tables - elements_not_chosen(model, plan.sequences);
  const BlockSpec& block = typical_block(model);
  const int64_t cache =
      plan.sequences * cached * 2 * block.kv_heads * block.head_dim * model.blocks();
  return (weights + cache) * base::size_of(plan.dtype);
}

}  // namespace trireme::spec
