// SPDX-License-Identifier: Apache-2.0
// Attention among ranks along cp. Letters: T, Tu, S rows of the rank, of its group (Ulysses) and of
// the micro-batch; K head size; HK and KV widths of the queries and of the keys of a rank's heads.
//
//   Ulysses   packs q, k and v by ranks, exchanges, and packs o back
//   gather    for a few kv heads at a time: gathers k and v of all groups, puts them into the order
//             of rows, attends; backward: the same, then sums dk and dv over groups in fp32
//   ring      attends to the keys of one group after the other, which go round, and merges
#include "spec/facts/facts_internal.h"

namespace trireme::spec {

int64_t gathered_kv_heads(int64_t kv_heads) {
  for (int64_t groups = std::min<int64_t>(kv_heads, 8); groups > 1; --groups) {
    if (kv_heads % groups == 0) return kv_heads / groups;
  }
  return kv_heads;
}

namespace internal {

using base::DType;
using base::TensorSpec;

ContextFacts::ContextFacts(const BlockSpec& local, const FactsInput& in)
    : split(in.shape.context()),
      block(local),
      part(attention_block(local, in.shape)),
      T(in.shape.tokens),
      Tu(T * split.ulysses),
      S(T * split.cp()),
      K(part.head_dim),
      HK(part.heads * K),
      KV(part.kv_heads * K),
      act(in.recipe.storage),
      shape(attention_shape(part, in.shape, act)),
      backend(in.backend) {}

void ContextFacts::copy(Work& work, const TensorSpec& d, DType from) const {
  work.ops.push_back(streaming(OpKind::copy, d, {{d.shape, from}, d}));
}

void ContextFacts::exchange(Work& work, int64_t width) const {
  work.comm.push_back(
      {CommKind::all_to_all, Axis::cp, split.ulysses * T * width, act, split.ulysses, true});
}

void ContextFacts::exchange_heads(Work& work) const {
  for (int rank = 0; rank < split.ulysses; ++rank) {
    for (const int64_t width : {HK, KV, KV}) copy(work, rows(T, width));
  }
  exchange(work, HK + 2 * KV);
}

void ContextFacts::gather_keys(Work& work, int64_t kv_heads) const {
  copy(work, rows(Tu, kv_heads * K));
  copy(work, rows(Tu, kv_heads * K));
  work.comm.push_back(
      {CommKind::all_gather, Axis::cp, S * 2 * kv_heads * K, act, split.groups, false});
}

void ContextFacts::forward(Work& work) const {
  const double pairs = mean_pairs(split);
  const TensorSpec lse = f32(part.heads, Tu);
  if (split.groups == 1) {
    work.ops.push_back({.kind = OpKind::attention_forward,
                        .m = Tu,
                        .n = split.seq_len,
                        .k = K,
                        .dtype = act,
                        .flops = 4 * pairs * static_cast<double>(HK),
                        .bytes = 2 * moved({rows(Tu, HK), rows(Tu, KV)}) + moved(lse)});
  } else if (split.is_ring) {
    copy(work, rows(Tu, KV));
    copy(work, rows(Tu, KV));
    const TensorSpec o = f32(Tu, HK);
    for (int step = 0; step < split.groups; ++step) {
      if (step + 1 < split.groups) {
        work.comm.push_back({CommKind::shift, Axis::cp, Tu * 2 * KV, act, split.groups, false});
      }
      work.ops.push_back({.kind = OpKind::attention_ranges_forward,
                          .m = Tu,
                          .n = Tu,
                          .k = K,
                          .dtype = act,
                          .flops = 4 * (pairs / split.groups) * static_cast<double>(HK),
                          .bytes = moved({rows(Tu, HK), rows(Tu, KV), rows(Tu, KV), o, lse})});
      if (step == 0) continue;
      work.ops.push_back(streaming(OpKind::attention_merge, o, {o, lse, o, o, lse, lse}));
    }
    copy(work, rows(Tu, HK), DType::f32);
  } else {
    const int64_t kv_heads = gathered_kv_heads(part.kv_heads), calls = part.kv_heads / kv_heads;
    const TensorSpec kv = rows(S, 2 * kv_heads * K), order{{S}, DType::i32};
    const TensorSpec q = rows(Tu, HK / calls);
    gather_keys(work, kv_heads);
    for (int64_t call = 0; call < calls; ++call) {
      if (call + 1 < calls) gather_keys(work, kv_heads);
      work.ops.push_back(streaming(OpKind::scatter_rows, kv, {kv, order, kv}));
      work.ops.push_back({.kind = OpKind::attention_ranges_forward,
                          .m = Tu,
                          .n = S,
                          .k = K,
                          .dtype = act,
                          .flops = 4 * pairs * static_cast<double>(HK / calls),
                          .bytes = moved({q, kv, q, f32(part.heads / calls, Tu)})});
    }
  }
  if (!has_ulysses()) return;
  exchange(work, HK);
  for (int rank = 0; rank < split.ulysses; ++rank) copy(work, rows(T, HK));
}

void ContextFacts::backward(Work& work) const {
  const double pairs = mean_pairs(split);
  if (has_ulysses()) {
    for (int rank = 0; rank < split.ulysses; ++rank) copy(work, rows(T, HK));
    exchange(work, HK);
  }
  if (split.groups == 1) {
    work.ops.push_back(
        {.kind = OpKind::attention_backward,
         .m = Tu,
         .n = split.seq_len,
         .k = K,
         .dtype = act,
         .flops = 10 * pairs * static_cast<double>(HK),
         .bytes = 4 * moved({rows(Tu, HK), rows(Tu, KV)}) + moved(f32(part.heads, Tu))});
  } else if (split.is_ring) {
    copy(work, rows(Tu, KV));
    copy(work, rows(Tu, KV));
    const TensorSpec dq = f32(Tu, HK), dkv = f32(Tu, 2 * KV);
    for (int step = 0; step < split.groups; ++step) {
      if (step + 1 < split.groups) {
        work.comm.push_back({CommKind::shift, Axis::cp, Tu * 2 * KV, act, split.groups, false});
      }
      const int64_t read = moved({rows(Tu, HK), rows(Tu, KV), rows(Tu, KV), rows(Tu, HK),
                                  rows(Tu, HK), f32(part.heads, Tu)});
      work.ops.push_back({.kind = OpKind::attention_ranges_backward,
                          .m = Tu,
                          .n = Tu,
                          .k = K,
                          .dtype = act,
                          .flops = 10 * (pairs / split.groups) * static_cast<double>(HK),
                          .bytes = read + moved({dq, dkv}) * (step == 0 ? 1 : 2)});
      work.comm.push_back(
          {CommKind::shift, Axis::cp, Tu * 2 * KV, DType::f32, split.groups, false});
    }
    copy(work, rows(Tu, HK), DType::f32);
    copy(work, rows(Tu, KV), DType::f32);
    copy(work, rows(Tu, KV), DType::f32);
  } else {
    const int64_t kv_heads = gathered_kv_heads(part.kv_heads), calls = part.kv_heads / kv_heads;
    const TensorSpec kv = rows(S, 2 * kv_heads * K), dkv = f32(S, 2 * kv_heads * K);
    const TensorSpec order{{S}, DType::i32}, q = rows(Tu, HK / calls);
    gather_keys(work, kv_heads);
    for (int64_t call = 0; call < calls; ++call) {
      if (call + 1 < calls) gather_keys(work, kv_heads);
      work.ops.push_back(streaming(OpKind::scatter_rows, kv, {kv, order, kv}));
      work.ops.push_back({.kind = OpKind::attention_ranges_backward,
                          .m = Tu,
                          .n = S,
                          .k = K,
                          .dtype = act,
                          .flops = 10 * pairs * static_cast<double>(HK / calls),
                          .bytes = moved({q, kv, q, q, f32(part.heads / calls, Tu), q, dkv})});
      work.ops.push_back(streaming(OpKind::gather_rows, dkv, {dkv, order, dkv}));
      work.comm.push_back({CommKind::reduce_scatter, Axis::cp, S * 2 * kv_heads * K, DType::f32,
                           split.groups, false});
      copy(work, rows(Tu, kv_heads * K), DType::f32);
      copy(work, rows(Tu, kv_heads * K), DType::f32);
    }
  }
  if (!has_ulysses()) return;
  exchange(work, HK + 2 * KV);
  const int64_t readers = split.ulysses / std::min<int64_t>(block.kv_heads, split.ulysses);
  for (int rank = 0; rank < split.ulysses; ++rank) {
    copy(work, rows(T, HK));
    for (int i = 0; i < 2 && readers == 1; ++i) copy(work, rows(T, KV));
  }
  // A key/value head that several ranks read: its gradients are added in fp32.
  for (int64_t head = 0; head < 2 * block.kv_heads && readers > 1; ++head) {
    const TensorSpec sum = f32(T, K);
    copy(work, sum, act);
    for (int64_t reader = 1; reader < readers; ++reader) {
      work.ops.push_back(streaming(OpKind::accumulate, sum, {rows(T, K), sum, sum}));
    }
    copy(work, rows(T, K), DType::f32);
  }
}

std::vector<TensorSpec> ContextFacts::core_scratch(bool is_backward) const {
  if (split.groups == 1) {
    return is_backward ? std::vector{attention_workspace(backend, shape)}
                       : std::vector<TensorSpec>{};
  }
  AttentionRangesShape call{.dtype = act,
                            .grad_dtype = DType::f32,
                            .rows = Tu,
                            .keys = S,
                            .heads = part.heads,
                            .kv_heads = part.kv_heads,
                            .head_dim = K};
  if (split.is_ring) {
    call.keys = Tu;
    const TensorSpec kv = rows(Tu, 2 * KV), o = f32(Tu, HK), dkv = f32(Tu, 2 * KV);
    if (!is_backward) return {kv, kv, o, o, f32(part.heads, Tu)};
    return {kv, kv, dkv, dkv, o, attention_ranges_workspace(backend, call)};
  }
  call.kv_heads = gathered_kv_heads(part.kv_heads);
  const int64_t calls = part.kv_heads / call.kv_heads;
  call.heads /= calls;
  const int64_t width = 2 * call.kv_heads * K;
  std::vector<TensorSpec> all = {rows(S, width)};
  for (int64_t i = 0; i < std::min<int64_t>(calls, 2); ++i) {
    all.push_back(rows(Tu, width));
    all.push_back(rows(S, width));
  }
  if (is_backward) {
    const TensorSpec dkv = f32(S, width);
    for (const TensorSpec& spec :
         {dkv, dkv, f32(Tu, width), attention_ranges_workspace(backend, call)}) {
      all.push_back(spec);
    }
  }
  return all;
}

TensorSpec ContextFacts::own_rows() const {
  return rows(T, block.keeps_projection() ? block.rotated_width() : block.qkv_width());
}

std::vector<ScratchSet> ContextFacts::forward_scratch() const {
  std::vector<ScratchSet> sets;
  if (has_ulysses()) {
    sets.push_back({"attention.pack", {own_rows(), rows(Tu, HK + 2 * KV)}, true});
    sets.push_back({"attention.unpack", {rows(Tu, HK)}, true});
  }
  if (split.groups > 1) sets.push_back({"attention.keys", core_scratch(false), true});
  return sets;
}

std::vector<ScratchSet> ContextFacts::backward_scratch() const {
  std::vector<ScratchSet> sets;
  const TensorSpec dout = rows(T, block.heads * K);
  std::vector<TensorSpec> core = core_scratch(true);
  if (!has_ulysses()) {
    core.insert(core.begin(), dout);
    return {{"attention.do", core}};
  }
  const TensorSpec dout_heads = rows(Tu, HK), dheads = rows(Tu, HK + 2 * KV);
  sets.push_back({"attention.do", {dout_heads, dout, rows(Tu, HK)}});
  core.insert(core.begin(), {dout_heads, dheads});
  sets.push_back({"attention.heads", core});
  const bool is_shared = split.ulysses > block.kv_heads;
  sets.push_back(
      {"attention.dheads", {dout_heads, dheads, dheads, is_shared ? f32(T, K) : TensorSpec{}}});
  return sets;
}

}  // namespace internal
}  // namespace trireme::spec
