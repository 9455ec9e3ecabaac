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
std::vector<std::string> expert_names(const spec::ModelDims& dims, BlockParam param,
                                      const std::string& prefix);
HfParam make_param(const spec::Param& param, std::vector<std::string> names, bool is_transposed);

int64_t product(std::span<const int64_t> shape) {
  return std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
}

}  // namespace

int64_t HfTensor::elements() const { return product(shape); }
int64_t HfParam::elements() const { return product(shape); }
int64_t HfParam::columns() const { return shape.size() > 1 ? shape.back() : 1; }
int64_t HfParam::rows() const { return elements() / columns(); }

int64_t HfParam::matrix_end(int64_t first) const {
  const int64_t rows_of_matrix = shape.size() == 3 ? shape[1] : shape[0];
  return (first / rows_of_matrix + 1) * rows_of_matrix;
}

spec::Piece HfParam::box(spec::Range rows, spec::Range columns) const {
  TRIREME_CHECK(0 <= rows.begin && rows.begin <= rows.end && rows.end <= matrix_end(rows.begin),
                "{}: rows {} to {}", name, rows.begin, rows.end);
  spec::Piece piece;
  if (shape.size() == 3) {
    const int64_t matrix = rows.begin / shape[1];
    piece = {
        {matrix, rows.begin - matrix * shape[1]}, {matrix + 1, rows.end - matrix * shape[1]}, 0};
  } else {
    piece = {{rows.begin}, {rows.end}, 0};
  }
  if (shape.size() == 1) return piece;
  piece.lo.push_back(columns.begin);
  piece.hi.push_back(columns.end);
  return piece;
}

void for_each_matrix(
    const HfParam& param, const spec::Piece& box,
    const std::function<void(spec::Range rows, spec::Range columns, int64_t element)>& each) {
  TRIREME_CHECK(box.lo.size() == param.shape.size() && box.hi.size() == param.shape.size(),
                "{}: a box of {} dimensions", param.name, box.lo.size());
  const size_t ndim = box.lo.size();
  const spec::Range columns =
      ndim == 1 ? spec::Range{0, 1} : spec::Range{box.lo.back(), box.hi.back()};
  if (ndim < 3) return each({box.lo[0], box.hi[0]}, columns, 0);
  const int64_t elements = (box.hi[1] - box.lo[1]) * (columns.end - columns.begin);
  for (int64_t matrix = box.lo[0]; matrix < box.hi[0]; ++matrix) {
    const int64_t first = matrix * param.shape[1];
    each({first + box.lo[1], first + box.hi[1]}, columns, (matrix - box.lo[0]) * elements);
  }
}

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
  const std::string prefix = fmt::format("model.layers.{}.", layer - 1);
  if (spec::has_experts(dims, layer - 1)) {
    names = expert_names(dims, param, prefix);
    if (!names.empty()) return names;
  }
  for (const std::string_view name : llama_names(param)) {
    names.push_back(fmt::format("{}{}", prefix, name));
  }
  return names;
}

// Returns the names of the tensors that only blocks with experts have; empty for other parameters.
std::vector<std::string> expert_names(const spec::ModelDims& dims, BlockParam param,
                                      const std::string& prefix) {
  // Models without norms on q and k are written as Mixtral (config/files/hf_experts.h).
  const bool is_mixtral = !dims.qk_norm;
  const std::string mlp = prefix + (is_mixtral ? "block_sparse_moe." : "mlp.");
  Names of_expert;
  switch (param) {
    case BlockParam::router_weight:
      return {mlp + "gate.weight"};
    case BlockParam::shared_up_weight:
      return {mlp + "shared_experts.gate_proj.weight", mlp + "shared_experts.up_proj.weight"};
    case BlockParam::shared_down_weight:
      return {mlp + "shared_experts.down_proj.weight"};
    case BlockParam::up_weight:
      of_expert = is_mixtral ? Names{"w1", "w3"} : Names{"gate_proj", "up_proj"};
      break;
    case BlockParam::down_weight:
      of_expert = {is_mixtral ? "w2" : "down_proj"};
      break;
    default:
      return {};
  }
  std::vector<std::string> names;
  for (int64_t expert = 0; expert < dims.moe->router.experts; ++expert) {
    for (const std::string_view name : of_expert) {
      names.push_back(fmt::format("{}experts.{}.{}.weight", mlp, expert, name));
    }
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
// q|k|v and gate|up, of every expert.
std::vector<int64_t> segments_of(const spec::ShardSpec& shard, size_t names) {
  std::vector<int64_t> one = {shard.shape[0]};
  if (shard.shape.size() == 3) {
    one = {shard.shape[1]};
    for (const spec::Cut& cut : shard.cuts) {
      if (cut.dim == 1) one = cut.segments;
    }
  } else if (names > 1) {
    one = shard.cuts.at(0).segments;
  }
  std::vector<int64_t> segments;
  while (segments.size() < names) segments.insert(segments.end(), one.begin(), one.end());
  return segments;
}

HfParam make_param(const spec::Param& param, std::vector<std::string> names, bool is_transposed) {
  const spec::ShardSpec& shard = param.shard;
  TRIREME_CHECK(!names.empty() && !names.front().empty(), "{} has no name in Hugging Face files",
                shard.name);
  HfParam result{.name = shard.name, .shape = shard.shape, .tensors = {}};
  const std::vector<int64_t> segments = segments_of(shard, names.size());
  TRIREME_CHECK(segments.size() == names.size(), "{}: {} segments, {} names", shard.name,
                segments.size(), names.size());
  int64_t row = 0;
  for (size_t i = 0; i < names.size(); ++i) {
    HfTensor tensor{.name = std::move(names[i]),
                    .shape = {segments[i]},
                    .first_row = row,
                    .rows = segments[i],
                    .is_transposed = is_transposed};
    if (shard.shape.size() > 1) tensor.shape.push_back(result.columns());
    if (is_transposed) std::swap(tensor.shape[0], tensor.shape[1]);
    row += segments[i];
    result.tensors.push_back(std::move(tensor));
  }
  TRIREME_CHECK(row == result.rows(), "{}: segments have {} of {} rows", shard.name, row,
                result.rows());
  return result;
}

}  // namespace

}  // namespace trireme::ckpt
