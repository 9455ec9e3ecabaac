// SPDX-License-Identifier: Apache-2.0
// A transformer block. Letters: T tokens, D width, H heads, G key/value heads, K head size, F
// feed-forward width.
//
//   h1 = norm1(x);  qkv = h1 Wqkv^T;  qk = rope(norm(q), norm(k));  o = attention;  x2 = o Wo^T + x
//   h2 = norm2(x2);  up = h2 Wup^T;  act = swiglu(up) or gelu(up);                   y = act Wd^T +
//   x2
//
// Without q/k norm the rotation is done in place and there is no qk slot. Gradients of norm weights
// are made in B, by the same row that makes dx: their inputs are at hand there, and W would have to
// keep [T, D] more for each norm.
#include <cmath>
#include <utility>

#include "spec/facts_internal.h"

namespace trireme::spec::internal {
namespace {

using base::DType;
using base::TensorSpec;

struct Shapes {
  Shapes(const BlockSpec& s, const FactsInput& in)
      : T(in.shape.tokens),
        D(s.width),
        HK(s.heads * s.head_dim),
        N(s.qkv_width()),
        U(s.up_width()),
        F(s.ffn),
        stats(norm_stats(s.norm)),
        act(in.recipe.storage),
        grad(in.recipe.grad) {}

  TensorSpec row(int64_t width) const { return {{T, width}, act}; }
  TensorSpec f32(int64_t rows, int64_t cols) const { return {{rows, cols}, DType::f32}; }
  TensorSpec vec(int64_t n) const { return {{n}, act}; }
  TensorSpec dvec(int64_t n) const { return {{n}, grad}; }

  int64_t T, D, HK, N, U, F, stats;
  DType act, grad;
};

std::vector<Slot> block_slots(const BlockSpec& s, const Shapes& h) {
  std::vector<Slot> slots(static_cast<size_t>(BlockSlot::count));
  const auto at = [&slots](BlockSlot slot) -> Slot& { return slots[static_cast<size_t>(slot)]; };
  const int64_t qk_width = (s.heads + s.kv_heads) * s.head_dim;
  const TensorSpec none{};
  at(BlockSlot::x) = {.name = "x", .spec = h.row(h.D)};
  at(BlockSlot::dy) = {.name = "dy", .spec = h.row(h.D), .life = Life::b_to_w};
  at(BlockSlot::stats1) = {.name = "stats1", .spec = h.f32(h.T, h.stats)};
  // Results of norms and of SwiGLU that only W reads.
  const auto remade = [](const char* name, const TensorSpec& spec) {
    return Slot{
        .name = name, .spec = spec, .life = Life::f_to_w, .recomputable = true, .remade = true};
  };
  at(BlockSlot::h1) = remade("h1", h.row(h.D));
  at(BlockSlot::qkv) = {.name = "qkv", .spec = h.row(h.N)};
  at(BlockSlot::qk) = {
      .name = "qk", .spec = s.qk_norm ? h.row(qk_width) : none, .recomputable = true};
  at(BlockSlot::qk_rstd) = {.name = "qk_rstd",
                            .spec = s.qk_norm ? h.f32(h.T, s.heads + s.kv_heads) : none};
  at(BlockSlot::o) = {.name = "o", .spec = h.row(h.HK), .life = Life::f_to_w};
  at(BlockSlot::lse) = {.name = "lse", .spec = h.f32(s.heads, h.T)};
  at(BlockSlot::x2) = {.name = "x2", .spec = h.row(h.D)};
  at(BlockSlot::stats2) = {.name = "stats2", .spec = h.f32(h.T, h.stats)};
  at(BlockSlot::h2) = remade("h2", h.row(h.D));
  at(BlockSlot::up) = {.name = "up", .spec = h.row(h.U)};
  at(BlockSlot::act) = remade("act", h.row(h.F));
  at(BlockSlot::dqkv) = {.name = "dqkv", .spec = h.row(h.N), .life = Life::b_to_w};
  at(BlockSlot::dx2) = {.name = "dx2", .spec = h.row(h.D), .life = Life::b_to_w};
  at(BlockSlot::dup) = {.name = "dup", .spec = h.row(h.U), .life = Life::b_to_w};
  // SwiGLU's backward is elementwise, so its result may overwrite its input. GELU's is the epilogue
  // of a GEMM, which makes nothing else.
  if (s.activation == Activation::swiglu) {
    at(BlockSlot::dup).replaces = static_cast<int>(BlockSlot::up);
  } else {
    at(BlockSlot::act).remade = false;
  }
  return slots;
}

std::vector<ScratchSet> block_scratch(const BlockSpec& s, const Shapes& h, const FactsInput& in) {
  const TensorSpec partials = h.f32(norm_partials(h.T), h.D * h.stats);
  std::vector<ScratchSet> sets;
  if (s.activation == Activation::swiglu) sets.push_back({"mlp.dact", {h.row(h.F)}});
  sets.push_back({"mlp.dh2", {h.row(h.D), partials}});
  sets.push_back(
      {"attention.do",
       {h.row(h.HK), attention_workspace(in.backend, attention_shape(s, in.shape, h.act))}});
  if (s.qk_norm) sets.push_back({"attention.qk_norm", {h.f32(norm_partials(h.T), 2 * s.head_dim)}});
  sets.push_back({"attention.dh1", {h.row(h.D), partials}});
  return sets;
}

// The forward operations that fill the slots for which `fills` is true, and y if `makes_y`.
template <typename Fills>
std::vector<OpCost> forward_ops(const BlockSpec& s, const FactsInput& in, const Shapes& h,
                                bool makes_y, Fills fills) {
  std::vector<OpCost> ops;
  const TensorSpec none{};
  const TensorSpec x = h.row(h.D), stats = h.f32(h.T, h.stats);
  const TensorSpec bias = s.norm == NormKind::layer ? h.vec(h.D) : none;
  const TensorSpec ids{{h.T}, DType::i32};
  const auto norm = [&] {
    ops.push_back(streaming(OpKind::norm_forward, x, {x, h.vec(h.D), bias, x, stats}));
  };
  if (fills(BlockSlot::h1)) norm();
  if (fills(BlockSlot::qkv)) {
    ops.push_back(gemm_cost({h.T, h.N, h.D, Layout::nt, h.act, h.act},
                            {s.has_qkv_bias() ? h.vec(h.N) : none}));
  }
  const TensorSpec qk{{h.T, s.heads + s.kv_heads, s.head_dim}, h.act};
  if (s.rope && fills(s.qk_norm ? BlockSlot::qk : BlockSlot::qkv)) {
    const TensorSpec weight = s.qk_norm ? h.vec(s.head_dim) : none;
    const TensorSpec rstd = s.qk_norm ? h.f32(h.T, s.heads + s.kv_heads) : none;
    ops.push_back(streaming(OpKind::rope_forward, qk, {qk, qk, ids, weight, weight, rstd}));
  }
  if (fills(BlockSlot::o)) {
    const double pairs = causal_pairs(in.shape.sequences, in.shape.seq_len);
    const int64_t kv_bytes = 2 * moved(h.row(s.kv_heads * s.head_dim));
    ops.push_back({.kind = OpKind::attention_forward,
                   .m = h.T,
                   .n = in.shape.seq_len,
                   .k = s.head_dim,
                   .dtype = h.act,
                   .flops = 4 * pairs * static_cast<double>(h.HK),
                   .bytes = 2 * moved(h.row(h.HK)) + kv_bytes + moved(h.f32(s.heads, h.T))});
  }
  const TensorSpec out_bias = s.linear_bias ? h.vec(h.D) : none;
  if (fills(BlockSlot::x2)) {
    ops.push_back(gemm_cost({h.T, h.D, h.HK, Layout::nt, h.act, h.act}, {out_bias, x}));
  }
  if (fills(BlockSlot::h2)) norm();
  const bool gelu = s.activation == Activation::gelu;
  if (fills(BlockSlot::up)) {
    // With GELU, d is act and the epilogue also writes up.
    ops.push_back(gemm_cost({h.T, h.U, h.D, Layout::nt, h.act, h.act},
                            {s.linear_bias ? h.vec(h.U) : none, gelu ? h.row(h.U) : none}));
  } else if (gelu && fills(BlockSlot::act)) {
    ops.push_back(streaming(OpKind::gelu_forward, h.row(h.F), {h.row(h.F), h.row(h.F)}));
  }
  if (!gelu && fills(BlockSlot::act)) {
    ops.push_back(streaming(OpKind::swiglu_forward, h.row(h.F), {h.row(h.U), h.row(h.F)}));
  }
  if (makes_y) {
    ops.push_back(gemm_cost({h.T, h.D, h.F, Layout::nt, h.act, h.act}, {out_bias, x}));
  }
  return ops;
}

// `remakes` is true for slots that are written again on the way.
template <typename Remakes>
std::vector<OpCost> input_gradient_ops(const BlockSpec& s, const FactsInput& in, const Shapes& h,
                                       Remakes remakes) {
  std::vector<OpCost> ops;
  const TensorSpec none{};
  const TensorSpec x = h.row(h.D), ids{{h.T}, DType::i32};
  const auto norm = [&](BlockSlot result) {
    const bool is_layer = s.norm == NormKind::layer;
    const TensorSpec dbias = is_layer ? h.dvec(h.D) : none;
    const TensorSpec y = remakes(result) ? x : none;
    const TensorSpec bias = remakes(result) && is_layer ? h.vec(h.D) : none;
    ops.push_back(streaming(OpKind::norm_backward, x,
                            {x, x, h.f32(h.T, h.stats), h.vec(h.D), x, x, h.dvec(h.D), h.dvec(h.D),
                             dbias, dbias, bias, y}));
  };
  if (s.activation == Activation::swiglu) {
    ops.push_back(gemm_cost({h.T, h.F, h.D, Layout::nn, h.act, h.act}, {}));
    const TensorSpec y = remakes(BlockSlot::act) ? h.row(h.F) : none;
    ops.push_back(
        streaming(OpKind::swiglu_backward, h.row(h.F), {h.row(h.U), h.row(h.F), h.row(h.U), y}));
  } else {
    ops.push_back(gemm_cost({h.T, h.F, h.D, Layout::nn, h.act, h.act}, {h.row(h.F)}));
  }
  ops.push_back(gemm_cost({h.T, h.D, h.U, Layout::nn, h.act, h.act}, {}));
  norm(BlockSlot::h2);
  ops.push_back(gemm_cost({h.T, h.HK, h.D, Layout::nn, h.act, h.act}, {}));
  const double pairs = causal_pairs(in.shape.sequences, in.shape.seq_len);
  const int64_t kv_bytes = 4 * moved(h.row(s.kv_heads * s.head_dim));  // k, v, dk, dv
  ops.push_back({.kind = OpKind::attention_backward,
                 .m = h.T,
                 .n = in.shape.seq_len,
                 .k = s.head_dim,
                 .dtype = h.act,
                 .flops = 10 * pairs * static_cast<double>(h.HK),
                 .bytes = 4 * moved(h.row(h.HK)) + kv_bytes + moved(h.f32(s.heads, h.T))});
  if (s.rope) {
    const TensorSpec qk{{h.T, s.heads + s.kv_heads, s.head_dim}, h.act};
    const bool norms = s.qk_norm;
    const TensorSpec w = norms ? h.vec(s.head_dim) : none, dw = norms ? h.dvec(s.head_dim) : none;
    const TensorSpec rstd = norms ? h.f32(h.T, s.heads + s.kv_heads) : none;
    ops.push_back(streaming(OpKind::rope_backward, qk,
                            {qk, qk, ids, norms ? qk : none, rstd, w, w, dw, dw, dw, dw}));
  }
  ops.push_back(gemm_cost({h.T, h.D, h.N, Layout::nn, h.act, h.act}, {}));
  norm(BlockSlot::h1);
  return ops;
}

std::vector<OpCost> weight_gradient_ops(const BlockSpec& s, const Shapes& h) {
  const auto wgrad = [&h](int64_t out, int64_t in, bool bias) {
    const TensorSpec sum = bias ? h.dvec(out) : TensorSpec{};
    return gemm_cost({out, in, h.T, Layout::tn, h.act, h.grad, true}, {sum, sum});
  };
  return {wgrad(h.D, h.F, s.linear_bias), wgrad(h.U, h.D, s.linear_bias),
          wgrad(h.D, h.HK, s.linear_bias), wgrad(h.N, h.D, s.has_qkv_bias())};
}

}  // namespace

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
    set(BlockParam::q_norm, "q_norm.weight", {s.head_dim}, Init::ones);
    set(BlockParam::k_norm, "k_norm.weight", {s.head_dim}, Init::ones);
  }
  set(BlockParam::out_weight, "out.weight", {s.width, s.heads * s.head_dim}, Init::normal,
      residual_std);
  if (s.linear_bias) set(BlockParam::out_bias, "out.bias", {s.width}, Init::zeros);
  set(BlockParam::norm2_weight, "norm2.weight", {s.width}, Init::ones);
  if (norm_bias) set(BlockParam::norm2_bias, "norm2.bias", {s.width}, Init::zeros);
  const char* up = s.activation == Activation::swiglu ? "gate_up.weight" : "up.weight";
  set(BlockParam::up_weight, up, {s.up_width(), s.width}, Init::normal, model.init_std);
  if (s.linear_bias) set(BlockParam::up_bias, "up.bias", {s.up_width()}, Init::zeros);
  set(BlockParam::down_weight, "down.weight", {s.width, s.ffn}, Init::normal, residual_std);
  if (s.linear_bias) set(BlockParam::down_bias, "down.bias", {s.width}, Init::zeros);

  // Column-parallel projections are cut by output rows, inside each segment; row-parallel ones by
  // input columns.
  const auto cut = [&params](BlockParam p, int dim, std::vector<int64_t> segments) {
    Param& param = params[static_cast<size_t>(p)];
    if (!param.shard.shape.empty()) param.shard.cuts = {{Axis::tp, dim, std::move(segments)}};
  };
  const int64_t q = s.heads * s.head_dim, kv = s.kv_heads * s.head_dim;
  cut(BlockParam::qkv_weight, 0, {q, kv, kv});
  cut(BlockParam::qkv_bias, 0, {q, kv, kv});
  const std::vector<int64_t> up_segments =
      s.activation == Activation::swiglu ? std::vector{s.ffn, s.ffn} : std::vector{s.ffn};
  cut(BlockParam::up_weight, 0, up_segments);
  cut(BlockParam::up_bias, 0, up_segments);
  cut(BlockParam::out_weight, 1, {q});
  cut(BlockParam::down_weight, 1, {s.ffn});
  return params;
}

Facts block_facts(const BlockSpec& s, const FactsInput& in) {
  const Shapes h(s, in);
  Facts f;
  f.params = block_params(s, in.model, in.layer);
  f.stash = block_slots(s, h);
  f.scratch = block_scratch(s, h, in);
  f.f = forward_ops(s, in, h, true, [](BlockSlot) { return true; });
  const auto has_fate = [&](Fate fate) {
    return [&f, &in, fate](BlockSlot slot) {
      const auto index = static_cast<int>(slot);
      return fate_of(f.stash[static_cast<size_t>(index)], index, in.recompute) == fate;
    };
  };
  f.b = input_gradient_ops(s, in, h, has_fate(Fate::remade));
  f.w = weight_gradient_ops(s, h);
  f.r = forward_ops(s, in, h, false, has_fate(Fate::refilled));
  return f;
}

}  // namespace trireme::spec::internal
