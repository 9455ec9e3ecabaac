// SPDX-License-Identifier: Apache-2.0
#include "nn/attention/rotation.h"

#include <array>

#include "kernels/ops.h"

namespace trireme::nn {
namespace {

namespace ops = kernels::ops;
using base::DType;
using spec::BlockParam;
using spec::BlockSlot;
using spec::BlockSpec;

Tensor at(std::span<const Tensor> tensors, BlockParam param) {
  return tensors[static_cast<size_t>(param)];
}

// q or k: its columns in rows of q | k, and its norm over all heads.
struct Part {
  int64_t first, width;
  BlockParam weight;
  int64_t first_stats;

  Tensor columns(const Tensor& qk) const { return qk.slice_cols(first, width); }
  Tensor stats(Pass& pass, int64_t rows) const {
    return pass.stash[BlockSlot::qk_rstd].slice_rows(first_stats, rows);
  }
};
std::array<Part, 2> parts_of(const BlockSpec& s, int64_t rows) {
  const int64_t q = s.heads * s.head_dim, k = s.kv_heads * s.head_dim;
  return {{{0, q, BlockParam::q_norm, 0}, {q, k, BlockParam::k_norm, rows}}};
}

void norm(Pass& pass, const BlockSpec& s, const Tensor& qkv, const Tensor& qk) {
  for (const Part& part : parts_of(s, qkv.rows())) {
    ops::norm_forward(pass.stream, {.kind = spec::NormKind::rms,
                                    .eps = s.qk_norm_eps,
                                    .x = part.columns(qkv),
                                    .weight = at(pass.params, part.weight),
                                    .y = part.columns(qk),
                                    .stats = part.stats(pass, qkv.rows())});
  }
}

void norm_back(Pass& pass, const BlockSpec& s, const Tensor& dqkv) {
  const Tensor qkv = pass.stash[BlockSlot::qkv];
  for (const Part& part : parts_of(s, dqkv.rows())) {
    const device::Arena::Mark mark(pass.scratch);
    const Tensor d = part.columns(dqkv);
    ops::norm_backward(pass.stream, {.kind = spec::NormKind::rms,
                                     .dy = d,
                                     .x = part.columns(qkv),
                                     .stats = part.stats(pass, dqkv.rows()),
                                     .weight = at(pass.params, part.weight),
                                     .dx = d,
                                     .dweight = at(pass.grads, part.weight),
                                     .partials = pass.scratch.take(spec::norm_backward_partials(
                                         spec::NormKind::rms, dqkv.rows(), part.width, false))});
  }
}

// The limits act on the projection, or after a norm of all heads on its result and v.
void limit(Pass& pass, const BlockSpec& s, const Tensor& qkv, const Tensor& qk) {
  if (!s.qk_norm_whole) {
    ops::clamp(pass.stream, {.x = qkv, .limit = s.clip_qkv, .y = qk});
    return;
  }
  const int64_t width = (s.heads + s.kv_heads) * s.head_dim, v = s.kv_heads * s.head_dim;
  const Tensor normed = qk.slice_cols(0, width);
  ops::clamp(pass.stream, {.x = normed, .limit = s.clip_qkv, .y = normed});
  ops::clamp(pass.stream,
             {.x = qkv.slice_cols(width, v), .limit = s.clip_qkv, .y = qk.slice_cols(width, v)});
}

void limit_back(Pass& pass, const BlockSpec& s, const Tensor& dqkv) {
  const Tensor qkv = pass.stash[BlockSlot::qkv];
  const auto limit_columns = [&](const Tensor& x, const Tensor& d) {
    ops::clamp(pass.stream, {.x = x, .dy = d, .limit = s.clip_qkv, .y = d});
  };
  if (!s.qk_norm_whole) return limit_columns(qkv, dqkv);
  const device::Arena::Mark mark(pass.scratch);
  const int64_t width = (s.heads + s.kv_heads) * s.head_dim, v = s.kv_heads * s.head_dim;
  const Tensor normed = pass.scratch.take({{dqkv.rows(), width}, dqkv.dtype});
  norm(pass, s, qkv, normed);
  limit_columns(normed, dqkv.slice_cols(0, width));
  limit_columns(qkv.slice_cols(width, v), dqkv.slice_cols(width, v));
}

bool has_norm_by_head(const BlockSpec& s) { return s.qk_norm && !s.qk_norm_whole; }

}  // namespace

void rotate(Pass& pass, const BlockSpec& s, Tensor qkv, Tensor qk) {
  if (s.qk_norm_whole) norm(pass, s, qkv, qk);
  if (s.clip_qkv > 0) limit(pass, s, qkv, qk);
  const int64_t heads = s.heads + s.kv_heads;
  const bool by_head = has_norm_by_head(s);
  const Tensor y = (s.keeps_projection() ? qk : qkv).slice_heads(0, heads, s.head_dim);
  kernels::RopeForwardArgs args{.x = by_head ? qkv.slice_heads(0, heads, s.head_dim) : y,
                                .y = y,
                                .positions = pass.positions,
                                .table = pass.rope_table,
                                .q_heads = s.heads,
                                .eps = s.qk_norm_eps};
  if (by_head) {
    args.q_weight = at(pass.params, BlockParam::q_norm);
    args.k_weight = at(pass.params, BlockParam::k_norm);
    args.rstd = pass.stash[BlockSlot::qk_rstd];
  }
  ops::rope_forward(pass.stream, args);
}

void rotate_back(Pass& pass, const BlockSpec& s, Tensor dqkv) {
  const int64_t heads = s.heads + s.kv_heads;
  const Tensor d = dqkv.slice_heads(0, heads, s.head_dim);
  {
    const device::Arena::Mark mark(pass.scratch);
    kernels::RopeBackwardArgs args{.dy = d,
                                   .dx = d,
                                   .positions = pass.positions,
                                   .table = pass.rope_table,
                                   .q_heads = s.heads};
    if (has_norm_by_head(s)) {
      args.x = pass.stash[BlockSlot::qkv].slice_heads(0, heads, s.head_dim);
      args.rstd = pass.stash[BlockSlot::qk_rstd];
      args.q_weight = at(pass.params, BlockParam::q_norm);
      args.k_weight = at(pass.params, BlockParam::k_norm);
      args.dq_weight = at(pass.grads, BlockParam::q_norm);
      args.dk_weight = at(pass.grads, BlockParam::k_norm);
      args.partials =
          pass.scratch.take({{spec::norm_partials(dqkv.rows()), 2 * s.head_dim}, DType::f32});
    }
    ops::rope_backward(pass.stream, args);
  }
  if (s.clip_qkv > 0) limit_back(pass, s, dqkv);
  if (s.qk_norm_whole) norm_back(pass, s, dqkv);
}

}  // namespace trireme::nn
