// SPDX-License-Identifier: Apache-2.0
#include "nn/attention/attention.h"

#include "kernels/ops.h"
#include "nn/attention/rotation.h"
#include "nn/linear.h"

namespace trireme::nn {
namespace {

namespace ops = kernels::ops;
using base::DType;
using kernels::AddTerms;
using spec::BlockParam;
using spec::BlockSlot;

}  // namespace

Attention::Attention(const spec::BlockSpec& spec, const spec::LocalShape& shape,
                     const spec::Backend& backend, const Boundaries& boundaries)
    : BlockPart(spec, shape, backend, boundaries.tp),
      core_(make_attention_core(spec_, shape, backend, boundaries.cp)) {}

void Attention::forward(Pass& pass) const {
  const device::Range range(pass.stream, "attention");
  Stash& stash = pass.stash;
  if (pass.recipe.fp8) {
    Quantizer(pass).begin();
  } else if (pass.fills(BlockSlot::h1)) {
    ops::norm_forward(pass.stream, {.kind = spec_.norm,
                                    .eps = spec_.norm_eps,
                                    .x = pass.x,
                                    .weight = at(pass.params, BlockParam::norm1_weight),
                                    .bias = at(pass.params, BlockParam::norm1_bias),
                                    .y = stash[BlockSlot::h1],
                                    .stats = stash[BlockSlot::stats1]});
  }
  if (core_->exchanges_heads()) {
    if (pass.fills(BlockSlot::heads)) {
      // The rank's rows are only read here, unless the backward reads the projection.
      const device::Arena::Mark mark(pass.scratch);
      const bool keeps = spec_.keeps_projection();
      const int64_t width = keeps ? spec_.rotated_width() : spec_.qkv_width();
      const Tensor own = pass.scratch.take({{shape_.tokens, width}, pass.x.dtype});
      const Tensor qkv = keeps ? stash[BlockSlot::qkv] : own;
      project(pass, qkv);
      if (spec_.rope) rotate(pass, spec_, qkv, own);
      core_->exchange(pass, heads(qkv, own));
    }
  } else {
    if (pass.fills(BlockSlot::qkv)) project(pass, stash[BlockSlot::qkv]);
    const bool keeps = spec_.keeps_projection();
    if (spec_.rope && pass.fills(keeps ? BlockSlot::qk : BlockSlot::qkv)) {
      rotate(pass, spec_, stash[BlockSlot::qkv], keeps ? stash[BlockSlot::qk] : Tensor{});
    }
  }
  if (pass.fills(BlockSlot::o)) core_->forward(pass, kept_heads(pass));
  if (pass.fills(BlockSlot::x2) && pass.recipe.fp8) {
    project_out_codes(pass);
  } else if (pass.fills(BlockSlot::x2)) {
    tp_.linear_forward(pass, {.x = stash[BlockSlot::o],
                              .weight = at(pass.params, BlockParam::out_weight),
                              .epilogue = AddTerms{.bias = at(pass.params, BlockParam::out_bias),
                                                   .residual = pass.x},
                              .y = stash[BlockSlot::x2]});
  }
}

void Attention::project(Pass& pass, Tensor qkv) const {
  if (pass.recipe.fp8) return project_codes(pass, qkv);
  const device::Arena::Mark mark(pass.scratch);
  linear_forward(pass, {.x = tp_.gather_rows(pass, pass.stash[BlockSlot::h1]),
                        .weight = at(pass.params, BlockParam::qkv_weight),
                        .epilogue = AddTerms{.bias = at(pass.params, BlockParam::qkv_bias)},
                        .y = qkv});
}

void Attention::backward_input(Pass& pass) const {
  const device::Range range(pass.stream, "attention backward");
  if (pass.recipe.fp8) return backward_codes(pass);
  Stash& stash = pass.stash;
  const Tensor dx2 = stash[BlockSlot::dx2];
  const Tensor dx2_whole = tp_.gather_rows(pass, dx2, stash[BlockSlot::dx2_whole]);
  const int64_t rows = dx2.rows();
  const DType act = dx2.dtype;
  const Tensor dqkv = stash[BlockSlot::dqkv];
  const auto make_dout = [&](Tensor dout) {
    linear_backward_input(
        pass, {.dy = dx2_whole, .weight = at(pass.params, BlockParam::out_weight), .dx = dout});
  };
  core_->backward(pass, kept_heads(pass), make_dout, split_heads(dqkv, spec_));
  if (spec_.rope) rotate_back(pass, spec_, dqkv);
  const device::Arena::Mark mark(pass.scratch);
  const Tensor dh1 = pass.scratch.take({{rows, spec_.width}, act});
  tp_.linear_backward_input(
      pass, {.dy = dqkv, .weight = at(pass.params, BlockParam::qkv_weight), .dx = dh1});
  const Tensor out_bias = bias_grad(pass, Half::input, BlockParam::out_bias);
  ops::norm_backward(pass.stream, {.kind = spec_.norm,
                                   .dy = dh1,
                                   .x = pass.x,
                                   .stats = stash[BlockSlot::stats1],
                                   .weight = at(pass.params, BlockParam::norm1_weight),
                                   .dresidual = dx2,
                                   .dx = pass.dx,
                                   .dweight = at(pass.grads, BlockParam::norm1_weight),
                                   .dbias = at(pass.grads, BlockParam::norm1_bias),
                                   .dresidual_sum = out_bias,
                                   .bias = at(pass.params, BlockParam::norm1_bias),
                                   .y = pass.recomputed_in_b(BlockSlot::h1),
                                   .partials = pass.scratch.take(norm_partials(rows, out_bias))});
}

void Attention::backward_weight(Pass& pass) const {
  if (pass.recipe.fp8) return weights_of_codes(pass);
  Stash& stash = pass.stash;
  weight_product(pass, tp_.gathered_rows(stash[BlockSlot::dx2], stash[BlockSlot::dx2_whole]),
                 stash[BlockSlot::o], BlockParam::out_weight, BlockParam::out_bias);
  weight_product_of_norm(pass, stash[BlockSlot::dqkv], stash[BlockSlot::h1], BlockParam::qkv_weight,
                         BlockParam::qkv_bias);
}

Heads Attention::heads(Tensor qkv, Tensor qk) const {
  Heads views = split_heads(qkv, spec_);
  if (!spec_.keeps_projection()) return views;
  const int64_t K = spec_.head_dim, H = spec_.heads, G = spec_.kv_heads;
  views.q = qk.slice_heads(0, H, K);
  views.k = qk.slice_heads(H * K, G, K);
  if (spec_.clip_qkv > 0) views.v = qk.slice_heads((H + G) * K, G, K);
  return views;
}

Heads Attention::kept_heads(Pass& pass) const {
  if (core_->exchanges_heads()) return {};
  const bool keeps = spec_.keeps_projection();
  return heads(pass.stash[BlockSlot::qkv], keeps ? pass.stash[BlockSlot::qk] : Tensor{});
}

}  // namespace trireme::nn
