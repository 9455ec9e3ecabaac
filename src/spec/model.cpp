// SPDX-License-Identifier: Apache-2.0
#include "spec/model.h"

#include "base/check.h"
#include "base/error.h"
#include "spec/facts/facts.h"

namespace trireme::spec {
namespace {

double real(int64_t value) { return static_cast<double>(value); }

void check_dims(const ModelDims& d, int64_t kv_heads, int64_t head_dim) {
  std::string broken;
  const auto demand = [&broken](bool holds, std::string rule) {
    if (!holds) broken += "\n  " + rule;
  };
  demand(d.layers >= 1, fmt::format("layers = {}: at least 1", d.layers));
  demand(d.hidden >= 1, fmt::format("hidden = {}: at least 1", d.hidden));
  demand(d.heads >= 1, fmt::format("heads = {}: at least 1", d.heads));
  demand(d.ffn >= 1, fmt::format("ffn = {}: at least 1", d.ffn));
  demand(d.vocab >= 2, fmt::format("vocab = {}: at least 2", d.vocab));
  demand(d.max_seq >= 1, fmt::format("max_seq = {}: at least 1", d.max_seq));
  demand(head_dim >= 1, fmt::format("head_dim = {}: at least 1", head_dim));
  if (d.heads >= 1) {
    demand(kv_heads >= 1 && d.heads % kv_heads == 0,
           fmt::format("kv_heads = {}: must divide heads = {}", kv_heads, d.heads));
    if (d.head_dim == 0) {
      demand(d.hidden % d.heads == 0,
             fmt::format("heads = {}: must divide hidden = {} if head_dim is not given", d.heads,
                         d.hidden));
    }
  }
  demand(d.norm_eps > 0, fmt::format("norm_eps = {}: must be positive", d.norm_eps));
  if (d.family == Family::llama) {
    demand(head_dim % 2 == 0, fmt::format("head_dim = {}: must be even for RoPE", head_dim));
    demand(d.rope.theta > 1, fmt::format("rope theta = {}: must be above 1", d.rope.theta));
    if (d.rope.scaling) {
      const RopeScaling& s = *d.rope.scaling;
      demand(s.factor >= 1, fmt::format("rope factor = {}: at least 1", s.factor));
      demand(s.low_freq_factor < s.high_freq_factor,
             fmt::format("rope low_freq_factor = {}: must be below high_freq_factor = {}",
                         s.low_freq_factor, s.high_freq_factor));
      demand(s.original_max_position >= 1,
             fmt::format("rope original_max_position = {}: at least 1", s.original_max_position));
    }
  } else {
    demand(d.tied_head, "tied_head = false: gpt2 has a tied head");
    demand(!d.qkv_bias && !d.qk_norm, "qkv_bias and qk_norm belong to family llama");
  }
  const double parameters = estimated_parameters(d);
  demand(parameters <= real(max_parameters),
         fmt::format("layers = {}: with hidden = {}, heads = {}, kv_heads = {}, head_dim = {}, "
                     "ffn = {}, vocab = {} and max_seq = {} that is {:.3g} parameters; at most "
                     "{:.3g}",
                     d.layers, d.hidden, d.heads, kv_heads, head_dim, d.ffn, d.vocab, d.max_seq,
                     parameters, real(max_parameters)));
  if (!broken.empty()) {
    throw base::ConfigError(fmt::format("model '{}' breaks these rules:{}", d.name, broken));
  }
}

}  // namespace

std::string_view name_of(Family family) { return family == Family::gpt2 ? "gpt2" : "llama"; }

double estimated_parameters(const ModelDims& d) {
  const bool gpt2 = d.family == Family::gpt2;
  const double hidden = real(d.hidden), heads = real(d.heads);
  const double kv_heads = d.kv_heads == 0 ? heads : real(d.kv_heads);
  const double attention = d.head_dim == 0 ? hidden : heads * real(d.head_dim);
  const double keys = heads > 0 ? attention / heads * kv_heads : 0;
  const double block = hidden * (2 * attention + 2 * keys + (gpt2 ? 2 : 3) * real(d.ffn));
  const double tables = real(d.vocab) * (d.tied_head ? 1 : 2) + (gpt2 ? real(d.max_seq) : 0);
  return d.layers * block + hidden * tables;
}

double activation_elements(const ModelSpec& model, double tokens) {
  double widths = 0;
  for (const LayerSpec& layer : model.layers) {
    if (const auto* block = std::get_if<BlockSpec>(&layer)) {
      widths += 4 * real(block->width) + real(block->qkv_width()) +
                real(block->heads) * real(block->head_dim) + real(block->up_width()) +
                real(block->ffn);
    } else if (const auto* head = std::get_if<HeadSpec>(&layer)) {
      widths += 2 * real(head->width) + real(head->vocab);
    } else {
      widths += real(std::get<EmbeddingSpec>(layer).width);
    }
  }
  return tokens * widths;
}

ModelSpec make_model(const ModelDims& d) {
  const int64_t kv_heads = d.kv_heads == 0 ? d.heads : d.kv_heads;
  const int64_t head_dim = d.head_dim != 0 ? d.head_dim : (d.heads > 0 ? d.hidden / d.heads : 0);
  check_dims(d, kv_heads, head_dim);
  const bool gpt2 = d.family == Family::gpt2;
  const NormKind norm = gpt2 ? NormKind::layer : NormKind::rms;
  const BlockSpec block{
      .width = d.hidden,
      .heads = d.heads,
      .kv_heads = kv_heads,
      .head_dim = head_dim,
      .ffn = d.ffn,
      .norm = norm,
      .norm_eps = d.norm_eps,
      .activation = gpt2 ? Activation::gelu : Activation::swiglu,
      .linear_bias = gpt2,
      .qkv_bias = d.qkv_bias,
      .qk_norm = d.qk_norm,
      .qk_norm_eps = d.qk_norm ? d.qk_norm_eps : BlockSpec{}.qk_norm_eps,
      .rope = gpt2 ? std::nullopt : std::optional<RopeSpec>(d.rope),
  };
  ModelSpec model{.name = d.name, .max_seq = d.max_seq, .init_std = d.init_std, .layers = {}};
  model.layers.emplace_back(EmbeddingSpec{
      .vocab = d.vocab, .width = d.hidden, .positions = gpt2 ? d.max_seq : 0, .tied = d.tied_head});
  for (int i = 0; i < d.layers; ++i) model.layers.emplace_back(block);
  model.layers.emplace_back(HeadSpec{.vocab = d.vocab,
                                     .width = d.hidden,
                                     .norm = norm,
                                     .norm_eps = d.norm_eps,
                                     .tied = d.tied_head});
  return model;
}

int64_t parameter_count(const ModelSpec& model) {
  int64_t count = 0;
  for (int layer = 0; layer < static_cast<int>(model.layers.size()); ++layer) {
    for (const Param& param : params_of(model, layer)) {
      if (param.tied_copy || param.shard.shape.empty()) continue;
      int64_t elements = 1;
      for (const int64_t dim : param.shard.shape) elements *= dim;
      count += elements;
    }
  }
  return count;
}

const BlockSpec& typical_block(const ModelSpec& model) {
  TRIREME_CHECK(model.layers.size() > 1, "{} has {} layers", model.name, model.layers.size());
  const auto* block = std::get_if<BlockSpec>(&model.layers[1]);
  TRIREME_CHECK(block != nullptr, "{} has no block behind its embedding", model.name);
  return *block;
}

int64_t vocab_of(const ModelSpec& model) { return std::get<HeadSpec>(model.layers.back()).vocab; }

}  // namespace trireme::spec
