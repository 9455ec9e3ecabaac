// SPDX-License-Identifier: Apache-2.0
#include "ckpt/hf/hf_names.h"

#include <numeric>
#include <span>
#include <utility>

#include "base/check.h"
#include "spec/facts/facts.h"

namespace trireme::ckpt {

namespace {

using spec::BlockParam;
using spec::EmbeddingParam;
using spec::HeadParam;

using Names = std::vector<std::string_view>;

Names llama_names(BlockParam param);
std::string_view gpt2_name(BlockParam param);
std::vector<std::string> names_of(const spec::ModelDims& dims, int layer, size_t index);
HfParam make_param(const spec::Param& param, std::vector<std::string> names, bool is_transposed);

int64_t product(std::span<const int64_t> shape) {
  return std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
}

}  // namespace

int64_t HfTensor::elements() const { return product(shape); }
int64_t HfParam::elements() const { return product(shape); }
int64_t HfParam::columns() const { return shape.size() == 2 ? shape[1] : 1; }

std::vector<HfParam> hf_params(const spec::ModelDims& dims) {
  const spec::ModelSpec model = spec::make_model(dims);
  std::vector<HfParam> result;
  for (int layer = 0; layer < static_cast<int>(model.layers.size()); ++layer) {
    const std::vector<spec::Param> params = spec::params_of(model, layer);
    const bool is_block = layer > 0 && layer <= model.blocks();
    for (size_t index = 0; index < params.size(); ++index) {
      const spec::Param& param = params[index];
      if (param.tied_copy || param.shard.shape.empty()) continue;
      // GPT-2's projections are stored as [in, out]; its embeddings are tables like ours.
      const bool is_transposed =
          dims.family == spec::Family::gpt2 && is_block && param.shard.shape.size() == 2;
      result.push_back(make_param(param, names_of(dims, layer, index), is_transposed));
    }
  }
  return result;
}

std::string_view optional_prefix(spec::Family family) {
  return family == spec::Family::gpt2 ? "transformer." : "";
}

bool is_constant(spec::Family family, std::string_view name) {
  if (family == spec::Family::llama) return name.ends_with("rotary_emb.inv_freq");
  return name.starts_with("h.") &&
         (name.ends_with(".attn.bias") || name.ends_with(".attn.masked_bias"));
}

namespace {

// Returns the names of one parameter's tensors; several if our parameter is fused.
std::vector<std::string> names_of(const spec::ModelDims& dims, int layer, size_t index) {
  const bool is_gpt2 = dims.family == spec::Family::gpt2;
  if (layer == 0) {
    if (static_cast<EmbeddingParam>(index) == EmbeddingParam::positions) {
      return {"transformer.wpe.weight"};
    }
    return {is_gpt2 ? "transformer.wte.weight" : "model.embed_tokens.weight"};
  }
  if (layer > dims.layers) {
    switch (static_cast<HeadParam>(index)) {
      case HeadParam::norm_weight:
        return {is_gpt2 ? "transformer.ln_f.weight" : "model.norm.weight"};
      case HeadParam::norm_bias:
        return {"transformer.ln_f.bias"};
      default:
        return {"lm_head.weight"};
    }
  }
  const auto param = static_cast<BlockParam>(index);
  if (is_gpt2) return {fmt::format("transformer.h.{}.{}", layer - 1, gpt2_name(param))};
  std::vector<std::string> names;
  for (const std::string_view name : llama_names(param)) {
    names.push_back(fmt::format("model.layers.{}.{}", layer - 1, name));
  }
  return names;
}

Names llama_names(BlockParam param) {
  switch (param) {
    case BlockParam::norm1_weight:
      return {"input_layernorm.weight"};
    case BlockParam::qkv_weight:
      return {"self_attn.q_proj.weight", "self_attn.k_proj.weight", "self_attn.v_proj.weight"};
    case BlockParam::qkv_bias:
      return {"self_attn.q_proj.bias", "self_attn.k_proj.bias", "self_attn.v_proj.bias"};
    case BlockParam::q_norm:
      return {"self_attn.q_norm.weight"};
    case BlockParam::k_norm:
      return {"self_attn.k_norm.weight"};
    case BlockParam::out_weight:
      return {"self_attn.o_proj.weight"};
    case BlockParam::norm2_weight:
      return {"post_attention_layernorm.weight"};
    case BlockParam::up_weight:
      return {"mlp.gate_proj.weight", "mlp.up_proj.weight"};
    case BlockParam::down_weight:
      return {"mlp.down_proj.weight"};
    default:
      return {};
  }
}

std::string_view gpt2_name(BlockParam param) {
  switch (param) {
    case BlockParam::norm1_weight:
      return "ln_1.weight";
    case BlockParam::norm1_bias:
      return "ln_1.bias";
    case BlockParam::qkv_weight:
      return "attn.c_attn.weight";
    case BlockParam::qkv_bias:
      return "attn.c_attn.bias";
    case BlockParam::out_weight:
      return "attn.c_proj.weight";
    case BlockParam::out_bias:
      return "attn.c_proj.bias";
    case BlockParam::norm2_weight:
      return "ln_2.weight";
    case BlockParam::norm2_bias:
      return "ln_2.bias";
    case BlockParam::up_weight:
      return "mlp.c_fc.weight";
    case BlockParam::up_bias:
      return "mlp.c_fc.bias";
    case BlockParam::down_weight:
      return "mlp.c_proj.weight";
    case BlockParam::down_bias:
      return "mlp.c_proj.bias";
    default:
      return "";
  }
}

// A fused parameter is split where the shards of tensor parallelism split it: both use the segments
// q|k|v and gate|up.
HfParam make_param(const spec::Param& param, std::vector<std::string> names, bool is_transposed) {
  const spec::ShardSpec& shard = param.shard;
  TRIREME_CHECK(!names.empty() && !names.front().empty(), "{} has no name in Hugging Face files",
                shard.name);
  HfParam result{.name = shard.name, .shape = shard.shape, .tensors = {}};
  std::vector<int64_t> segments = {shard.shape[0]};
  if (names.size() > 1) segments = shard.cuts.at(0).segments;
  TRIREME_CHECK(segments.size() == names.size(), "{}: {} segments, {} names", shard.name,
                segments.size(), names.size());
  int64_t row = 0;
  for (size_t i = 0; i < names.size(); ++i) {
    HfTensor tensor{.name = std::move(names[i]),
                    .shape = shard.shape,
                    .first_row = row,
                    .rows = segments[i],
                    .is_transposed = is_transposed};
    tensor.shape[0] = segments[i];
    if (is_transposed) std::swap(tensor.shape[0], tensor.shape[1]);
    row += segments[i];
    result.tensors.push_back(std::move(tensor));
  }
  TRIREME_CHECK(row == shard.shape[0], "{}: segments have {} of {} rows", shard.name, row,
                shard.shape[0]);
  return result;
}

}  // namespace

}  // namespace trireme::ckpt
