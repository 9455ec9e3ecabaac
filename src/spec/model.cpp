// SPDX-License-Identifier: Apache-2.0
#include "spec/model.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "base/error.h"
#include "spec/facts/facts.h"

namespace trireme::spec {
namespace {

double real(int64_t value) { return static_cast<double>(value); }

template <typename Demand>
void check_moe(const ModelDims& d, Demand demand) {
  const RouterSpec& r = d.moe->router;
  demand(r.experts >= 1, fmt::format("experts = {}: at least 1", r.experts));
  demand(r.chosen >= 1 && r.chosen <= std::max<int64_t>(r.experts, 1),
         fmt::format("experts_per_token = {}: from 1 to experts = {}", r.chosen, r.experts));
  demand(d.moe->ffn >= 1, fmt::format("expert_ffn = {}: at least 1", d.moe->ffn));
  demand(d.moe->shared_ffn >= 0, fmt::format("shared_ffn = {}: at least 0", d.moe->shared_ffn));
  demand(r.scale > 0, fmt::format("routed_scale = {}: must be positive", r.scale));
  const bool groups_divide = r.groups >= 1 && r.experts % r.groups == 0;
  demand(groups_divide,
         fmt::format("expert_groups = {}: must divide experts = {}", r.groups, r.experts));
  demand(
      r.chosen_groups >= 1 && r.chosen_groups <= r.groups,
      fmt::format("chosen_groups = {}: from 1 to expert_groups = {}", r.chosen_groups, r.groups));
  if (groups_divide && r.groups > 1) {
    const int64_t size = r.experts / r.groups;
    demand(size >= 2, fmt::format("expert_groups = {}: groups need at least 2 experts", r.groups));
    demand(r.chosen <= size * r.chosen_groups,
           fmt::format("experts_per_token = {}: at most those of {} groups of {}", r.chosen,
                       r.chosen_groups, size));
  }
  demand(d.dense_layers >= 0 && d.dense_layers < std::max(d.layers, 1),
         fmt::format("dense_layers = {}: from 0 to below layers = {}", d.dense_layers, d.layers));
  demand(d.expert_step >= 1 && d.expert_step <= std::max(d.layers, 1),
         fmt::format("expert_step = {}: from 1 to layers = {}", d.expert_step, d.layers));
  const BalanceSpec& b = d.moe->balance;
  demand(b.aux >= 0 && b.z >= 0 && b.bias_rate >= 0,
         fmt::format("aux_loss = {}, z_loss = {}, bias_rate = {}: at least 0", b.aux, b.z,
                     b.bias_rate));
  demand(b.bias_rate == 0 || r.has_bias,
         fmt::format("bias_rate = {}: the router has no bias", b.bias_rate));
}

void check_dims(const ModelDims& d, int64_t kv_heads, int64_t head_dim) {
  std::string broken;
  const auto demand = [&broken](bool holds, std::string rule) {
    if (!holds) broken += "\n  " + rule;
  };
  demand(d.layers >= 1, fmt::format("layers = {}: at least 1", d.layers));
  demand(d.hidden >= 1, fmt::format("hidden = {}: at least 1", d.hidden));
  demand(d.heads >= 1, fmt::format("heads = {}: at least 1", d.heads));
  const bool has_dense = !d.moe || d.dense_layers > 0 || d.expert_step > 1;
  demand(d.ffn >= 1 || !has_dense, fmt::format("ffn = {}: at least 1", d.ffn));
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
    demand(!d.qkv_bias && !d.qk_norm && d.clip_qkv == 0,
           "qkv_bias, qk_norm and clip_qkv belong to family llama");
    demand(!d.moe, "experts belong to family llama");
  }
  demand(!d.qk_norm_whole || d.qk_norm, "qk_norm_whole = true: needs qk_norm");
  demand(d.clip_qkv >= 0, fmt::format("clip_qkv = {}: at least 0", d.clip_qkv));
  demand(d.clip_qkv == 0 || !d.qk_norm || d.qk_norm_whole,
         fmt::format("clip_qkv = {}: with qk_norm it needs qk_norm_whole", d.clip_qkv));
  if (d.moe) check_moe(d, demand);
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

// Sums the elements of all parameters; share(block, parameter) is the part of a block's parameter
// that counts.
template <typename Share>
int64_t sum_of_parameters(const ModelSpec& model, Share share) {
  int64_t count = 0;
  for (int layer = 0; layer < static_cast<int>(model.layers.size()); ++layer) {
    const auto* block = std::get_if<BlockSpec>(&model.layers[static_cast<size_t>(layer)]);
    for (const Param& param : params_of(model, layer)) {
      if (param.tied_copy || param.shard.shape.empty()) continue;
      int64_t elements = 1;
      for (const int64_t dim : param.shard.shape) elements *= dim;
      const double part = block == nullptr ? 1.0 : share(*block, param);
      count += part == 1 ? elements : static_cast<int64_t>(std::llround(part * real(elements)));
    }
  }
  return count;
}

}  // namespace

std::string_view name_of(Family family) { return family == Family::gpt2 ? "gpt2" : "llama"; }

bool has_experts(const ModelDims& d, int block) {
  return d.moe && block >= d.dense_layers &&
         (block - d.dense_layers + 1) % std::max(d.expert_step, 1) == 0;
}

int expert_blocks(const ModelDims& d) {
  return d.moe ? std::max(d.layers - d.dense_layers, 0) / std::max(d.expert_step, 1) : 0;
}

double estimated_parameters(const ModelDims& d) {
  const bool gpt2 = d.family == Family::gpt2;
  const double hidden = real(d.hidden), heads = real(d.heads);
  const double kv_heads = d.kv_heads == 0 ? heads : real(d.kv_heads);
  const double attention = d.head_dim == 0 ? hidden : heads * real(d.head_dim);
  const double keys = heads > 0 ? attention / heads * kv_heads : 0;
  const double dense = (gpt2 ? 2 : 3) * real(d.ffn);
  const double tables = real(d.vocab) * (d.tied_head ? 1 : 2) + (gpt2 ? real(d.max_seq) : 0);
  double ffn = d.layers * dense;
  if (d.moe) {
    const double experts =
        real(d.moe->router.experts) * (3 * real(d.moe->ffn) + 1) + 3 * real(d.moe->shared_ffn);
    const int with_experts = expert_blocks(d);
    ffn = with_experts * experts + (d.layers - with_experts) * dense;
  }
  return hidden * (d.layers * (2 * attention + 2 * keys) + ffn + tables);
}

double activation_elements(const ModelSpec& model, double tokens) {
  double widths = 0;
  for (const LayerSpec& layer : model.layers) {
    if (const auto* block = std::get_if<BlockSpec>(&layer)) {
      widths += 4 * real(block->width) + real(block->qkv_width()) +
                real(block->heads) * real(block->head_dim);
      if (const auto& moe = block->moe) {
        widths += real(moe->router.experts) + 3 * real(moe->shared_ffn) +
                  real(moe->router.chosen) * (3 * real(block->width) + 3 * real(moe->ffn));
      } else {
        widths += real(block->up_width()) + real(block->ffn);
      }
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
      .qk_norm_whole = d.qk_norm_whole,
      .clip_qkv = d.clip_qkv,
      .rope = gpt2 ? std::nullopt : std::optional<RopeSpec>(d.rope),
  };
  ModelSpec model{.name = d.name, .max_seq = d.max_seq, .init_std = d.init_std, .layers = {}};
  model.layers.emplace_back(EmbeddingSpec{
      .vocab = d.vocab, .width = d.hidden, .positions = gpt2 ? d.max_seq : 0, .tied = d.tied_head});
  for (int i = 0; i < d.layers; ++i) {
    BlockSpec one = block;
    if (has_experts(d, i)) {
      one.moe = d.moe;
      one.ffn = 0;
    }
    model.layers.emplace_back(one);
  }
  model.layers.emplace_back(HeadSpec{.vocab = d.vocab,
                                     .width = d.hidden,
                                     .norm = norm,
                                     .norm_eps = d.norm_eps,
                                     .tied = d.tied_head});
  return model;
}

int64_t parameter_count(const ModelSpec& model) {
  return sum_of_parameters(model, [](const BlockSpec&, const Param&) { return 1.0; });
}

int64_t active_parameter_count(const ModelSpec& model) {
  return sum_of_parameters(model, [](const BlockSpec& block, const Param& param) {
    if (!block.moe || param.view != ParamView::expert) return 1.0;
    return real(block.moe->router.chosen) / real(block.moe->router.experts);
  });
}

const BlockSpec& typical_block(const ModelSpec& model) {
  TRIREME_CHECK(model.layers.size() > 1, "{} has {} layers", model.name, model.layers.size());
  const auto* block = std::get_if<BlockSpec>(&model.layers[model.layers.size() - 2]);
  TRIREME_CHECK(block != nullptr, "{} has no block before its head", model.name);
  return *block;
}

const MoeSpec* moe_of(const ModelSpec& model) {
  for (const LayerSpec& layer : model.layers) {
    const auto* block = std::get_if<BlockSpec>(&layer);
    if (block != nullptr && block->moe) return &*block->moe;
  }
  return nullptr;
}

int64_t vocab_of(const ModelSpec& model) { return std::get<HeadSpec>(model.layers.back()).vocab; }

}  // namespace trireme::spec
