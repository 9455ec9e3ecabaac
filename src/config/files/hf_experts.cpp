// SPDX-License-Identifier: Apache-2.0
#include "config/files/hf_experts.h"

#include <algorithm>
#include <vector>

#include "base/check.h"
#include "base/error.h"
#include "config/numbers/decimal.h"

namespace trireme::config {
namespace {

using base::Json;

constexpr int64_t max_experts = 1 << 16;

// transformers 5 has both names for one number.
int64_t read_expert_count(HfReader& in, int64_t absent) {
  const bool has_both =
      in.find("num_experts") != nullptr && in.find("num_local_experts") != nullptr;
  const int64_t named = in.size("num_experts", absent, max_experts);
  const int64_t local = in.size("num_local_experts", absent, max_experts);
  if (has_both && named != local) {
    in.problem("num_experts", fmt::format("{} contradicts num_local_experts = {}", named, local));
  }
  return in.find("num_experts") != nullptr ? named : local;
}

// Returns whether each layer of a Qwen3-MoE has experts.
std::vector<bool> read_sparse(HfReader& in, int layers) {
  const int64_t step = in.size("decoder_sparse_step", 1, std::max(layers, 1));
  std::vector<bool> sparse(static_cast<size_t>(layers));
  for (size_t layer = 0; layer < sparse.size(); ++layer) {
    sparse[layer] = (static_cast<int64_t>(layer) + 1) % step == 0;
  }
  const Json* dense = in.find("mlp_only_layers");
  if (dense == nullptr) return sparse;
  const auto is_layer = [layers](const Json& layer) {
    return layer.is_number_integer() && layer >= 0 && layer < layers;
  };
  if (!dense->is_array() || !std::ranges::all_of(*dense, is_layer)) {
    in.problem("mlp_only_layers", fmt::format("found {}, expected a list of layers from 0 to {}",
                                              HfReader::shown(*dense), layers - 1));
    return sparse;
  }
  for (const Json& layer : *dense) sparse[layer.get<size_t>()] = false;
  return sparse;
}

// Sets dense_layers and expert_step: after some dense blocks, every n-th block has experts.
void read_sparse_layers(HfReader& in, spec::ModelDims& d) {
  const std::vector<bool> sparse = read_sparse(in, d.layers);
  const auto first = std::ranges::find(sparse, true);
  if (first == sparse.end()) {
    in.problem("mlp_only_layers", "no layer has experts; use the model_type qwen3");
    return;
  }
  // If one block has experts, the next one would be behind the last block.
  const auto second = std::find(first + 1, sparse.end(), true);
  d.expert_step = static_cast<int>(second - first);
  d.dense_layers = std::max(static_cast<int>(first - sparse.begin()) - d.expert_step + 1, 0);
  for (int layer = 0; layer < d.layers; ++layer) {
    if (spec::has_experts(d, layer) == sparse[static_cast<size_t>(layer)]) continue;
    in.problem("mlp_only_layers",
               fmt::format("layer {} breaks the pattern: after the first layers, every n-th layer "
                           "must have experts",
                           layer));
    return;
  }
}

void refuse(const spec::ModelDims& d, std::string_view what) {
  throw base::ConfigError(
      fmt::format("model '{}': no supported Hugging Face type has {}", d.name, what));
}

}  // namespace

void read_experts(HfReader& in, std::string_view type, spec::ModelDims& d) {
  const bool is_mixtral = type == "mixtral", is_olmoe = type == "olmoe";
  spec::MoeSpec moe;
  moe.router.experts = read_expert_count(in, is_mixtral ? 8 : is_olmoe ? 64 : 128);
  moe.router.chosen = in.size("num_experts_per_tok", is_mixtral ? 2 : 8, max_experts);
  // Mixtral always divides by the sum of the chosen scores.
  moe.router.renormalizes = is_mixtral || in.boolean("norm_topk_prob", false);
  moe.balance.aux =
      static_cast<float>(in.number("router_aux_loss_coef", is_olmoe ? 0.01 : 0.001, 1000, 0));
  if (in.number("router_jitter_noise", 0, 1, 0) != 0) {
    in.problem("router_jitter_noise", "only 0 is supported: the router sees no noise");
  }
  if (type == "qwen3_moe") {
    d.qk_norm = true;
    moe.ffn = in.size("moe_intermediate_size", 768);
    d.moe = moe;
    read_sparse_layers(in, d);
    const bool has_dense = spec::expert_blocks(d) < d.layers;
    d.ffn = has_dense ? in.size("intermediate_size", 6144) : 0;
    return;
  }
  moe.ffn = in.size("intermediate_size");
  d.moe = moe;
  if (!is_olmoe) return;
  d.qk_norm = d.qk_norm_whole = true;
  if (in.find("clip_qkv") != nullptr) {
    d.clip_qkv = static_cast<float>(in.number("clip_qkv", std::nullopt, 1e6));
  }
  if (d.heads * d.head_dim != d.hidden) {
    in.problem("head_dim", fmt::format("{} with num_attention_heads = {}: their product must be "
                                       "hidden_size = {}, which q_norm has",
                                       d.head_dim, d.heads, d.hidden));
  }
}

std::string_view hf_type_of(const spec::ModelDims& d) {
  if (d.qkv_bias && d.qk_norm) refuse(d, "both biases on q, k, v and norms on q, k");
  if (!d.moe) {
    if (d.qk_norm_whole) refuse(d, "one norm of all q heads (qk_norm_whole) without experts");
    if (d.clip_qkv > 0) refuse(d, "clip_qkv without experts");
    return d.qkv_bias ? "qwen2" : d.qk_norm ? "qwen3" : "llama";
  }
  const spec::RouterSpec& router = d.moe->router;
  if (d.qkv_bias) refuse(d, "experts and biases on q, k, v");
  if (router.score != spec::RouterScore::softmax) refuse(d, "experts with score = \"sigmoid\"");
  if (router.groups > 1) refuse(d, "experts in groups (expert_groups)");
  if (router.has_bias) refuse(d, "experts with router_bias");
  if (router.scale != 1) refuse(d, "experts with a routed_scale other than 1");
  if (d.moe->shared_ffn > 0) refuse(d, "shared experts (shared_ffn)");
  const bool has_dense = spec::expert_blocks(d) < d.layers;
  if (d.qk_norm && !d.qk_norm_whole) {
    if (d.clip_qkv > 0) refuse(d, "clip_qkv without qk_norm_whole");
    return "qwen3_moe";
  }
  if (has_dense) refuse(d, "dense_layers or expert_step without norms of q and k heads (qk_norm)");
  if (!d.qk_norm) {
    if (d.clip_qkv > 0) refuse(d, "clip_qkv without qk_norm_whole");
    if (!router.renormalizes) refuse(d, "experts with renormalize = false and without qk_norm");
    return "mixtral";
  }
  const int64_t head_dim = d.head_dim > 0 ? d.head_dim : d.hidden / d.heads;
  if (d.heads * head_dim != d.hidden) {
    refuse(d, "qk_norm_whole where heads * head_dim is not hidden");
  }
  return "olmoe";
}

void write_experts(const spec::ModelDims& d, std::string_view type, Json& json) {
  TRIREME_CHECK(d.moe.has_value(), "'{}' has no experts", d.name);
  const spec::RouterSpec& router = d.moe->router;
  json["num_experts_per_tok"] = router.chosen;
  json["router_aux_loss_coef"] = decimal(d.moe->balance.aux);
  json["output_router_logits"] = false;
  json["intermediate_size"] = d.moe->ffn;
  if (type == "mixtral") {
    json["num_local_experts"] = router.experts;
    json["router_jitter_noise"] = 0.0;
    json["sliding_window"] = nullptr;
    json.erase("attention_bias");
    return;
  }
  json["num_experts"] = router.experts;
  json["norm_topk_prob"] = router.renormalizes;
  if (type == "olmoe") {
    json["clip_qkv"] = d.clip_qkv > 0 ? Json(decimal(d.clip_qkv)) : Json();
    json.erase("head_dim");
    return;
  }
  if (d.ffn > 0) json["intermediate_size"] = d.ffn;
  json["moe_intermediate_size"] = d.moe->ffn;
  json["decoder_sparse_step"] = 1;
  Json dense = Json::array();
  for (int layer = 0; layer < d.layers; ++layer) {
    if (!spec::has_experts(d, layer)) dense.push_back(layer);
  }
  json["mlp_only_layers"] = dense;
}

}  // namespace trireme::config
