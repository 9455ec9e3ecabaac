// SPDX-License-Identifier: Apache-2.0
// The parameters of a transformer block: their initial values, their cuts along tp, ep and etp, and
// how their gradients are computed.
#include <cmath>
#include <utility>

#include "spec/facts/facts_internal.h"

namespace trireme::spec::internal {

std::vector<Param> block_params(const BlockSpec& s, const ModelSpec& model, int layer) {
  std::vector<Param> params(static_cast<size_t>(BlockParam::count));
  const std::string prefix = "blocks." + std::to_string(layer - 1) + ".";
  // Projections that add to the residual stream start smaller, as in GPT-2: there are two per
  // block.
  const float residual_std = model.init_std / std::sqrt(2.0F * static_cast<float>(model.blocks()));
  const auto set = [&](BlockParam p, const char* name, std::vector<int64_t> shape, Init init,
                       float std_dev = 0) {
    params[static_cast<size_t>(p)] = make_param(prefix + name, std::move(shape), init, std_dev);
  };
  const bool norm_bias = s.norm == NormKind::layer;
  set(BlockParam::norm1_weight, "norm1.weight", {s.width}, Init::ones);
  if (norm_bias) set(BlockParam::norm1_bias, "norm1.bias", {s.width}, Init::zeros);
  set(BlockParam::qkv_weight, "qkv.weight", {s.qkv_width(), s.width}, Init::normal, model.init_std);
  if (s.has_qkv_bias()) set(BlockParam::qkv_bias, "qkv.bias", {s.qkv_width()}, Init::zeros);
  if (s.qk_norm) {
    const int64_t normed_q = s.qk_norm_whole ? s.heads : 1;
    const int64_t normed_k = s.qk_norm_whole ? s.kv_heads : 1;
    set(BlockParam::q_norm, "q_norm.weight", {normed_q * s.head_dim}, Init::ones);
    set(BlockParam::k_norm, "k_norm.weight", {normed_k * s.head_dim}, Init::ones);
  }
  set(BlockParam::out_weight, "out.weight", {s.width, s.heads * s.head_dim}, Init::normal,
      residual_std);
  if (s.linear_bias) set(BlockParam::out_bias, "out.bias", {s.width}, Init::zeros);
  set(BlockParam::norm2_weight, "norm2.weight", {s.width}, Init::ones);
  if (norm_bias) set(BlockParam::norm2_bias, "norm2.bias", {s.width}, Init::zeros);
  if (s.moe) {
    const int64_t experts = s.moe->router.experts, ffn = s.moe->ffn, shared = s.moe->shared_ffn;
    set(BlockParam::router_weight, "router.weight", {experts, s.width}, Init::normal,
        model.init_std);
    set(BlockParam::up_weight, "experts.gate_up.weight", {experts, 2 * ffn, s.width}, Init::normal,
        model.init_std);
    set(BlockParam::down_weight, "experts.down.weight", {experts, s.width, ffn}, Init::normal,
        residual_std);
    if (shared > 0) {
      set(BlockParam::shared_up_weight, "shared.gate_up.weight", {2 * shared, s.width},
          Init::normal, model.init_std);
      set(BlockParam::shared_down_weight, "shared.down.weight", {s.width, shared}, Init::normal,
          residual_std);
    }
  } else {
    const char* up = s.activation == Activation::swiglu ? "gate_up.weight" : "up.weight";
    set(BlockParam::up_weight, up, {s.up_width(), s.width}, Init::normal, model.init_std);
    if (s.linear_bias) set(BlockParam::up_bias, "up.bias", {s.up_width()}, Init::zeros);
    set(BlockParam::down_weight, "down.weight", {s.width, s.ffn}, Init::normal, residual_std);
    if (s.linear_bias) set(BlockParam::down_bias, "down.bias", {s.width}, Init::zeros);
  }

  for (const BlockParam p :
       {BlockParam::norm1_weight, BlockParam::norm1_bias, BlockParam::norm2_weight,
        BlockParam::norm2_bias, BlockParam::router_weight}) {
    params[static_cast<size_t>(p)].is_by_rows = true;
  }
  for (const BlockParam p : {BlockParam::qkv_weight, BlockParam::out_weight, BlockParam::up_weight,
                             BlockParam::down_weight, BlockParam::router_weight,
                             BlockParam::shared_up_weight, BlockParam::shared_down_weight}) {
    params[static_cast<size_t>(p)].is_written = true;
  }
  for (const BlockParam p : {BlockParam::q_norm, BlockParam::k_norm}) {
    params[static_cast<size_t>(p)].is_by_heads = !s.qk_norm_whole;
  }

  // Column-parallel projections are cut by output rows, inside each segment; row-parallel ones by
  // input columns.
  const auto cut = [&params](BlockParam p, int dim, std::vector<int64_t> segments) {
    Param& param = params[static_cast<size_t>(p)];
    if (!param.shard.shape.empty()) param.shard.cuts = {{Axis::tp, dim, std::move(segments)}};
  };
  const int64_t q = s.heads * s.head_dim, kv = s.kv_heads * s.head_dim;
  cut(BlockParam::qkv_weight, 0, {q, kv, kv});
  cut(BlockParam::qkv_bias, 0, {q, kv, kv});
  cut(BlockParam::out_weight, 1, {q});
  const auto matrices = [&params](BlockParam p, std::vector<int64_t> rows) {
    params[static_cast<size_t>(p)].matrices = std::move(rows);
  };
  matrices(BlockParam::qkv_weight, {q, kv, kv});
  matrices(BlockParam::out_weight, {s.width});
  const auto cut_feed_forward = [&](BlockParam up, BlockParam down,
                                    const std::vector<int64_t>& segments) {
    cut(up, 0, segments);
    cut(down, 1, {segments.front()});
    matrices(up, segments);
    matrices(down, {s.width});
  };
  if (!s.moe) {
    const std::vector<int64_t> segments =
        s.activation == Activation::swiglu ? std::vector{s.ffn, s.ffn} : std::vector{s.ffn};
    cut_feed_forward(BlockParam::up_weight, BlockParam::down_weight, segments);
    cut(BlockParam::up_bias, 0, segments);
    return params;
  }
  if (const int64_t shared = s.moe->shared_ffn; shared > 0) {
    cut_feed_forward(BlockParam::shared_up_weight, BlockParam::shared_down_weight,
                     {shared, shared});
  }
  // Ranks along ep have different experts, ranks along etp parts of each.
  const int64_t experts = s.moe->router.experts, ffn = s.moe->ffn;
  const auto cut_experts = [&params, experts](BlockParam p, int dim,
                                              std::vector<int64_t> segments) {
    Param& param = params[static_cast<size_t>(p)];
    param.view = ParamView::expert;
    param.shard.cuts = {{Axis::ep, 0, {experts}}, {Axis::etp, dim, std::move(segments)}};
  };
  cut_experts(BlockParam::up_weight, 1, {ffn, ffn});
  cut_experts(BlockParam::down_weight, 2, {ffn});
  return params;
}

}  // namespace trireme::spec::internal
