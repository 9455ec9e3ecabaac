// SPDX-License-Identifier: Apache-2.0
// Between projection and attention. Letters: T tokens, Q and K widths of q and of k, N of qkv.
//
//   a norm of every head    qk = rope(norm(q), norm(k)), one op
//   a norm of all heads     q and k are normed into qk, which is rotated in place
//   limits                  qk has v, too: all three are limited after the norm, before the
//   rotation none of them            q and k are rotated in place in qkv, and there is no qk
//
// Limits have a gradient where the value before them was within. After a norm of all heads B
// recomputes that value from the projection, so that nothing more is kept for it.
#include "spec/facts/facts_internal.h"

namespace trireme::spec::internal {

using base::DType;
using base::TensorSpec;

RotationFacts::RotationFacts(const BlockSpec& local, const FactsInput& in)
    : s(local),
      T(in.shape.tokens),
      Q(local.heads * local.head_dim),
      K(local.kv_heads * local.head_dim),
      act(in.recipe.storage),
      grad(in.recipe.grad) {}

void RotationFacts::slots(std::vector<Slot>& all, bool by_heads) const {
  const auto at = [&all](BlockSlot slot) -> Slot& { return all[static_cast<size_t>(slot)]; };
  const TensorSpec none{};
  // Under Ulysses the backward reads q, k and v by heads; the rank's rows of qkv only if they are
  // needed as they were projected.
  const bool keeps = s.keeps_projection();
  at(BlockSlot::qkv) = {.name = "qkv", .spec = by_heads && !keeps ? none : row(s.qkv_width())};
  at(BlockSlot::qk) = {.name = "qk",
                       .spec = keeps && !by_heads ? row(s.rotated_width()) : none,
                       .recomputable = true};
  const TensorSpec rstd = s.qk_norm_whole ? TensorSpec{{2 * T, 1}, DType::f32}
                                          : TensorSpec{{T, s.heads + s.kv_heads}, DType::f32};
  at(BlockSlot::qk_rstd) = {.name = "qk_rstd", .spec = s.qk_norm ? rstd : none};
}

void RotationFacts::norm(Work& work) const {
  for (const int64_t width : {Q, K}) {
    const TensorSpec x = row(width);
    work.ops.push_back(streaming(OpKind::norm_forward, x, {x, {{width}, act}, x, stats()}));
  }
}

void RotationFacts::forward(Work& work) const {
  const auto limit = [&](int64_t width) {
    work.ops.push_back(streaming(OpKind::clamp, row(width), {row(width), row(width)}));
  };
  if (s.qk_norm_whole) norm(work);
  if (s.clip_qkv > 0 && s.qk_norm_whole) {
    limit(Q + K);
    limit(K);
  } else if (s.clip_qkv > 0) {
    limit(Q + 2 * K);
  }
  const bool by_head = s.qk_norm && !s.qk_norm_whole;
  const TensorSpec qk{{T, s.heads + s.kv_heads, s.head_dim}, act}, none{};
  const TensorSpec weight = by_head ? TensorSpec{{s.head_dim}, act} : none;
  const TensorSpec rstd = by_head ? TensorSpec{{T, s.heads + s.kv_heads}, DType::f32} : none;
  const TensorSpec positions{{T}, DType::i32};
  work.ops.push_back(
      streaming(OpKind::rope_forward, qk, {qk, qk, positions, weight, weight, rstd}));
}

void RotationFacts::backward(Work& work) const {
  const bool by_head = s.qk_norm && !s.qk_norm_whole;
  const TensorSpec qk{{T, s.heads + s.kv_heads, s.head_dim}, act}, none{};
  const TensorSpec w = by_head ? TensorSpec{{s.head_dim}, act} : none;
  const TensorSpec dw = by_head ? TensorSpec{{s.head_dim}, grad} : none;
  const TensorSpec rstd = by_head ? TensorSpec{{T, s.heads + s.kv_heads}, DType::f32} : none;
  const TensorSpec positions{{T}, DType::i32};
  work.ops.push_back(
      streaming(OpKind::rope_backward, qk,
                {qk, qk, positions, by_head ? qk : none, rstd, w, w, dw, dw, dw, dw}));
  const auto limit = [&](int64_t width) {
    work.ops.push_back(streaming(OpKind::clamp, row(width), {row(width), row(width), row(width)}));
  };
  if (s.clip_qkv > 0 && s.qk_norm_whole) {
    norm(work);
    limit(Q + K);
    limit(K);
  } else if (s.clip_qkv > 0) {
    limit(Q + 2 * K);
  }
  if (!s.qk_norm_whole) return;
  for (const int64_t width : {Q, K}) {
    const TensorSpec x = row(width), dweight{{width}, grad};
    work.ops.push_back(
        streaming(OpKind::norm_backward, x, {x, x, stats(), {{width}, act}, x, dweight, dweight}));
  }
}

std::vector<ScratchSet> RotationFacts::scratch() const {
  if (!s.qk_norm) return {};
  if (!s.qk_norm_whole) {
    return {{"attention.qk_norm", {{{norm_partials(T), 2 * s.head_dim}, DType::f32}}}};
  }
  std::vector<ScratchSet> sets;
  if (s.clip_qkv > 0) sets.push_back({"attention.qk_limit", {row(Q + K)}});
  for (const int64_t width : {Q, K}) {
    sets.push_back({"attention.qk_norm", {norm_backward_partials(NormKind::rms, T, width, false)}});
  }
  return sets;
}

}  // namespace trireme::spec::internal
