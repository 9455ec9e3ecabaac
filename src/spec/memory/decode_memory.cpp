// SPDX-License-Identifier: Apache-2.0
#include "spec/memory/decode_memory.h"

#include <initializer_list>

#include "base/check.h"
#include "spec/facts/facts.h"

namespace trireme::spec {
namespace {

using base::DType;
using base::TensorSpec;

const EmbeddingSpec& embedding_of(const ModelSpec& model) {
  return std::get<EmbeddingSpec>(model.layers.front());
}

int64_t arena_bytes(const TensorSpec& spec) {
  return spec.shape.ndim() == 0 ? 0 : base::bytes_of(spec);
}

}  // namespace

DecodeTensors decode_tensors(const ModelSpec& model, const DecodePlan& plan,
                             const Backend& backend) {
  const BlockSpec& b = typical_block(model);
  const int64_t T = plan.max_rows();
  DecodeTensors t{
      .x = {{T, b.width}, plan.dtype},
      .h = {{T, b.width}, plan.dtype},
      .stats = {{T, norm_stats(b.norm)}, DType::f32},
      .qkv = {{T, b.qkv_width()}, plan.dtype},
      .qk_rstd = {},
      .o = {{T, b.heads * b.head_dim}, plan.dtype},
      .up = {{T, b.up_width()}, plan.dtype},
      .act = {{T, b.ffn}, plan.dtype},
      .workspace = attention_cached_workspace(
          backend,
          {.rows = T, .heads = b.heads, .head_dim = b.head_dim, .max_length = plan.capacity}),
      .logits = {{plan.sequences, vocab_of(model)}, DType::f32}};
  if (b.qk_norm) t.qk_rstd = {{T, b.qk_norm_whole ? 1 : b.heads + b.kv_heads}, DType::f32};
  return t;
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
      spec = {shape.size() == 2 ? base::Shape{shape[0], shape[1]} : base::Shape{shape[0]}, dtype};
    }
    specs.push_back(spec);
  }
  return specs;
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
    const LayerSpec& at = model.layers[static_cast<size_t>(layer)];
    if (const auto* block = std::get_if<BlockSpec>(&at)) {
      m.cache += arena_bytes(decode_cache_spec(*block, plan));
    }
  }
  const DecodeTensors t = decode_tensors(model, plan, backend);
  for (const TensorSpec& spec :
       {t.x, t.h, t.stats, t.qkv, t.qk_rstd, t.o, t.up, t.act, t.workspace, t.logits,
        stream_workspace_spec(backend), rope_table_spec(model, plan.capacity)}) {
    m.scratch += arena_bytes(spec);
  }
  m.staging = arena_bytes(decode_inputs_spec(plan));
  return m;
}

int64_t decode_step_bytes(const ModelSpec& model, const DecodePlan& plan, int64_t cached) {
  const EmbeddingSpec& embedding = embedding_of(model);
  const int64_t tables = embedding.positions * embedding.width +
                         (embedding.tied ? 0 : embedding.vocab * embedding.width);
  const int64_t weights = parameter_count(model) - tables;
  const BlockSpec& block = typical_block(model);
  const int64_t cache =
      plan.sequences * cached * 2 * block.kv_heads * block.head_dim * model.blocks();
  return (weights + cache) * base::size_of(plan.dtype);
}

}  // namespace trireme::spec
