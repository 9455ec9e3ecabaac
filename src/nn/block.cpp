// SPDX-License-Identifier: Apache-2.0
#include "nn/block.h"

#include <cmath>

#include "base/check.h"
#include "kernels/ops.h"
#include "nn/linear.h"

namespace trireme::nn {
namespace {

namespace ops = kernels::ops;
using base::DType;
using kernels::AddTerms;
using spec::BlockParam;
using spec::BlockSlot;

Tensor at(std::span<const Tensor> tensors, BlockParam param) {
  return tensors[static_cast<size_t>(param)];
}

// If true, the backward reads GELU's input again; otherwise the slot `up` holds GELU's slope.
bool recomputes_act(const Pass& pass) {
  return pass.stash.fate(BlockSlot::act) == spec::Fate::recomputed_in_b;
}

kernels::Epilogue gelu_forward(const Pass& pass) {
  const Tensor bias = at(pass.params, BlockParam::up_bias), up = pass.stash[BlockSlot::up];
  if (recomputes_act(pass)) return kernels::GeluForward{.bias = bias, .input = up};
  return kernels::GeluForwardSlope{.bias = bias, .slope = up};
}

kernels::Epilogue gelu_gradient(const Pass& pass, Tensor bias_grad) {
  const Tensor up = pass.stash[BlockSlot::up];
  if (!recomputes_act(pass)) return kernels::ScaleBy{.factor = up, .d_sum = bias_grad};
  return kernels::GeluGradient{
      .input = up, .d_sum = bias_grad, .gelu = pass.recomputed_in_b(BlockSlot::act)};
}

float attention_scale(int64_t head_dim) { return 1.0F / std::sqrt(static_cast<float>(head_dim)); }

}  // namespace

void Block::forward(Pass& pass, int phase) const {
  TRIREME_CHECK(phase >= 0 && phase < phase_count, "phase {}", phase);
  phase == attention ? forward_attention(pass) : forward_mlp(pass);
}

void Block::backward_input(Pass& pass, int phase) const {
  TRIREME_CHECK(phase >= 0 && phase < phase_count, "phase {}", phase);
  phase == attention ? backward_attention(pass) : backward_mlp(pass);
}

void Block::forward_attention(Pass& pass) const {
  const device::Range range(pass.stream, "attention");
  Stash& stash = pass.stash;
  if (pass.fills(BlockSlot::h1)) {
    ops::norm_forward(pass.stream, {.kind = spec_.norm,
                                    .eps = spec_.norm_eps,
                                    .x = pass.x,
                                    .weight = at(pass.params, BlockParam::norm1_weight),
                                    .bias = at(pass.params, BlockParam::norm1_bias),
                                    .y = stash[BlockSlot::h1],
                                    .stats = stash[BlockSlot::stats1]});
  }
  if (pass.fills(BlockSlot::qkv)) {
    const device::Arena::Mark mark(pass.scratch);
    linear_forward(pass, {.x = tp_.gather_rows(pass, stash[BlockSlot::h1]),
                          .weight = at(pass.params, BlockParam::qkv_weight),
                          .epilogue = AddTerms{.bias = at(pass.params, BlockParam::qkv_bias)},
                          .y = stash[BlockSlot::qkv]});
  }
  if (spec_.rope && pass.fills(spec_.qk_norm ? BlockSlot::qk : BlockSlot::qkv)) {
    rotate(pass, stash[BlockSlot::qkv]);
  }
  if (pass.fills(BlockSlot::o)) {
    const Heads in = heads(pass);
    ops::attention_forward(pass.stream,
                           {.q = in.q,
                            .k = in.k,
                            .v = in.v,
                            .seq_offsets = pass.seq_offsets,
                            .sequences = pass.sequences,
                            .max_seq = pass.max_seq,
                            .has_documents = pass.has_documents,
                            .scale = attention_scale(spec_.head_dim),
                            .o = stash[BlockSlot::o].slice_heads(0, spec_.heads, spec_.head_dim),
                            .lse = stash[BlockSlot::lse]});
  }
  if (pass.fills(BlockSlot::x2)) {
    tp_.linear_forward(pass, {.x = stash[BlockSlot::o],
                              .weight = at(pass.params, BlockParam::out_weight),
                              .epilogue = AddTerms{.bias = at(pass.params, BlockParam::out_bias),
                                                   .residual = pass.x},
                              .y = stash[BlockSlot::x2]});
  }
}

void Block::forward_mlp(Pass& pass) const {
  const device::Range range(pass.stream, "mlp");
  Stash& stash = pass.stash;
  if (pass.fills(BlockSlot::h2)) {
    ops::norm_forward(pass.stream, {.kind = spec_.norm,
                                    .eps = spec_.norm_eps,
                                    .x = stash[BlockSlot::x2],
                                    .weight = at(pass.params, BlockParam::norm2_weight),
                                    .bias = at(pass.params, BlockParam::norm2_bias),
                                    .y = stash[BlockSlot::h2],
                                    .stats = stash[BlockSlot::stats2]});
  }
  const bool gelu = spec_.activation == spec::Activation::gelu;
  TRIREME_CHECK(!gelu || pass.fills(BlockSlot::up) || !pass.fills(BlockSlot::act),
                "GELU's act must be computed with up, or recomputed in the backward");
  const bool swiglu_follows = !gelu && pass.fills(BlockSlot::act);
  if (pass.fills(BlockSlot::up)) {
    const device::Arena::Mark mark(pass.scratch);
    linear_forward(pass, {.x = tp_.gather_rows(pass, stash[BlockSlot::h2]),
                          .weight = at(pass.params, BlockParam::up_weight),
                          .epilogue = gelu ? gelu_forward(pass)
                                           : AddTerms{.bias = at(pass.params, BlockParam::up_bias)},
                          .y = stash[gelu ? BlockSlot::act : BlockSlot::up],
                          .swiglu = swiglu_follows ? stash[BlockSlot::act] : Tensor{}});
  } else if (swiglu_follows) {
    ops::swiglu_forward(pass.stream, {.gate_up = stash[BlockSlot::up], .y = stash[BlockSlot::act]});
  }
  if (!pass.recomputing) {
    tp_.linear_forward(pass, {.x = stash[BlockSlot::act],
                              .weight = at(pass.params, BlockParam::down_weight),
                              .epilogue = AddTerms{.bias = at(pass.params, BlockParam::down_bias),
                                                   .residual = stash[BlockSlot::x2]},
                              .y = pass.y});
  }
}

void Block::backward_mlp(Pass& pass) const {
  const device::Range range(pass.stream, "mlp backward");
  Stash& stash = pass.stash;
  const int64_t rows = pass.dy.rows();
  const Tensor dy = tp_.gather_rows(pass, pass.dy, stash[BlockSlot::dy_whole]);
  const Tensor dup = stash[BlockSlot::dup];
  if (spec_.activation == spec::Activation::gelu) {
    linear_backward_input(
        pass, {.dy = dy,
               .weight = at(pass.params, BlockParam::down_weight),
               .dx = dup,
               .epilogue = gelu_gradient(pass, bias_grad(pass, Part::input, BlockParam::up_bias))});
  } else {
    const device::Arena::Mark mark(pass.scratch);
    const Tensor dact = pass.scratch.take({{dy.rows(), spec_.ffn}, dy.dtype});
    linear_backward_input(pass, {.dy = dy,
                                 .weight = at(pass.params, BlockParam::down_weight),
                                 .dx = dact,
                                 .swiglu = {.gate_up = stash[BlockSlot::up],
                                            .dy = dact,
                                            .dgate_up = dup,
                                            .y = pass.recomputed_in_b(BlockSlot::act)}});
  }
  const device::Arena::Mark mark(pass.scratch);
  const Tensor dh2 = pass.scratch.take({{rows, spec_.width}, pass.dy.dtype});
  tp_.linear_backward_input(
      pass, {.dy = dup, .weight = at(pass.params, BlockParam::up_weight), .dx = dh2});
  const Tensor down_bias = bias_grad(pass, Part::input, BlockParam::down_bias);
  ops::norm_backward(pass.stream, {.kind = spec_.norm,
                                   .dy = dh2,
                                   .x = stash[BlockSlot::x2],
                                   .stats = stash[BlockSlot::stats2],
                                   .weight = at(pass.params, BlockParam::norm2_weight),
                                   .dresidual = pass.dy,
                                   .dx = stash[BlockSlot::dx2],
                                   .dweight = at(pass.grads, BlockParam::norm2_weight),
                                   .dbias = at(pass.grads, BlockParam::norm2_bias),
                                   .dresidual_sum = down_bias,
                                   .bias = at(pass.params, BlockParam::norm2_bias),
                                   .y = pass.recomputed_in_b(BlockSlot::h2),
                                   .partials = pass.scratch.take(norm_partials(rows, down_bias))});
}

void Block::backward_attention(Pass& pass) const {
  const device::Range range(pass.stream, "attention backward");
  Stash& stash = pass.stash;
  const Tensor dx2 = stash[BlockSlot::dx2];
  const Tensor dx2_whole = tp_.gather_rows(pass, dx2, stash[BlockSlot::dx2_whole]);
  const int64_t rows = dx2.rows();
  const DType act = dx2.dtype;
  const Tensor dqkv = stash[BlockSlot::dqkv];
  {
    const device::Arena::Mark mark(pass.scratch);
    const Tensor dout = pass.scratch.take({{dx2_whole.rows(), spec_.heads * spec_.head_dim}, act});
    linear_backward_input(
        pass, {.dy = dx2_whole, .weight = at(pass.params, BlockParam::out_weight), .dx = dout});
    const base::TensorSpec workspace =
        spec::attention_workspace(backend_, spec::attention_shape(spec_, shape_, act));
    const Heads in = heads(pass);
    const Heads out = split(dqkv);
    ops::attention_backward(
        pass.stream,
        {.q = in.q,
         .k = in.k,
         .v = in.v,
         .o = stash[BlockSlot::o].slice_heads(0, spec_.heads, spec_.head_dim),
         .dout = dout.slice_heads(0, spec_.heads, spec_.head_dim),
         .lse = stash[BlockSlot::lse],
         .seq_offsets = pass.seq_offsets,
         .sequences = pass.sequences,
         .max_seq = pass.max_seq,
         .has_documents = pass.has_documents,
         .scale = attention_scale(spec_.head_dim),
         .dq = out.q,
         .dk = out.k,
         .dv = out.v,
         .workspace = workspace.shape.ndim() == 0 ? Tensor{} : pass.scratch.take(workspace)});
  }
  if (spec_.rope) rotate_back(pass, dqkv);
  const device::Arena::Mark mark(pass.scratch);
  const Tensor dh1 = pass.scratch.take({{rows, spec_.width}, act});
  tp_.linear_backward_input(
      pass, {.dy = dqkv, .weight = at(pass.params, BlockParam::qkv_weight), .dx = dh1});
  const Tensor out_bias = bias_grad(pass, Part::input, BlockParam::out_bias);
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

void Block::backward_weight(Pass& pass) const {
  const device::Range range(pass.stream, "weight gradients");
  Stash& stash = pass.stash;
  const auto product = [&](Tensor dy, Tensor x, BlockParam weight, BlockParam bias) {
    linear_backward_weight(pass, {.dy = dy,
                                  .x = x,
                                  .weight_grad = at(pass.grads, weight),
                                  .writes = pass.writes,
                                  .bias_grad = bias_grad(pass, Part::weight, bias)});
  };
  // Under sequence parallelism a rank keeps its rows of a norm's result and gathers the others
  // again.
  const auto column = [&](BlockSlot dy, BlockSlot x, BlockParam weight, BlockParam bias) {
    const device::Arena::Mark mark(pass.scratch);
    product(stash[dy], tp_.gather_rows(pass, stash[x]), weight, bias);
  };
  product(tp_.gathered_rows(pass.dy, stash[BlockSlot::dy_whole]), stash[BlockSlot::act],
          BlockParam::down_weight, BlockParam::down_bias);
  column(BlockSlot::dup, BlockSlot::h2, BlockParam::up_weight, BlockParam::up_bias);
  product(tp_.gathered_rows(stash[BlockSlot::dx2], stash[BlockSlot::dx2_whole]),
          stash[BlockSlot::o], BlockParam::out_weight, BlockParam::out_bias);
  column(BlockSlot::dqkv, BlockSlot::h1, BlockParam::qkv_weight, BlockParam::qkv_bias);
}

Tensor Block::bias_grad(const Pass& pass, Part part, BlockParam bias) const {
  const bool is_in_b = spec::is_bias_made_in_b(spec_, shape_, bias);
  return is_in_b == (part == Part::input) ? at(pass.grads, bias) : Tensor{};
}

void Block::rotate(Pass& pass, Tensor qkv) const {
  const int64_t qk_heads = spec_.heads + spec_.kv_heads;
  const Tensor raw = qkv.slice_heads(0, qk_heads, spec_.head_dim);
  const bool norms = spec_.qk_norm;
  ops::rope_forward(
      pass.stream,
      {.x = raw,
       .y = norms ? pass.stash[BlockSlot::qk].slice_heads(0, qk_heads, spec_.head_dim) : raw,
       .positions = pass.positions,
       .table = pass.rope_table,
       .q_heads = spec_.heads,
       .q_weight = at(pass.params, BlockParam::q_norm),
       .k_weight = at(pass.params, BlockParam::k_norm),
       .eps = spec_.qk_norm_eps,
       .rstd = norms ? pass.stash[BlockSlot::qk_rstd] : Tensor{}});
}

void Block::rotate_back(Pass& pass, Tensor dqkv) const {
  const device::Arena::Mark mark(pass.scratch);
  const int64_t qk_heads = spec_.heads + spec_.kv_heads;
  const Tensor d = dqkv.slice_heads(0, qk_heads, spec_.head_dim);
  kernels::RopeBackwardArgs args{.dy = d,
                                 .dx = d,
                                 .positions = pass.positions,
                                 .table = pass.rope_table,
                                 .q_heads = spec_.heads};
  if (spec_.qk_norm) {
    args.x = pass.stash[BlockSlot::qkv].slice_heads(0, qk_heads, spec_.head_dim);
    args.rstd = pass.stash[BlockSlot::qk_rstd];
    args.q_weight = at(pass.params, BlockParam::q_norm);
    args.k_weight = at(pass.params, BlockParam::k_norm);
    args.dq_weight = at(pass.grads, BlockParam::q_norm);
    args.dk_weight = at(pass.grads, BlockParam::k_norm);
    args.partials =
        pass.scratch.take({{spec::norm_partials(dqkv.rows()), 2 * spec_.head_dim}, DType::f32});
  }
  ops::rope_backward(pass.stream, args);
}

Block::Heads Block::heads(Pass& pass) const {
  Heads views = split(pass.stash[BlockSlot::qkv]);
  if (spec_.qk_norm) {
    const Tensor qk = pass.stash[BlockSlot::qk];
    views.q = qk.slice_heads(0, spec_.heads, spec_.head_dim);
    views.k = qk.slice_heads(spec_.heads * spec_.head_dim, spec_.kv_heads, spec_.head_dim);
  }
  return views;
}

Block::Heads Block::split(Tensor fused) const {
  const int64_t q = spec_.heads * spec_.head_dim, kv = spec_.kv_heads * spec_.head_dim;
  return {fused.slice_heads(0, spec_.heads, spec_.head_dim),
          fused.slice_heads(q, spec_.kv_heads, spec_.head_dim),
          fused.slice_heads(q + kv, spec_.kv_heads, spec_.head_dim)};
}

}  // namespace trireme::nn
