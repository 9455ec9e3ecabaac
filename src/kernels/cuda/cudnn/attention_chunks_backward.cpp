// SPDX-License-Identifier: Apache-2.0
// The backward of attention of ranges by cuDNN.
//
// cuDNN writes dk and dv of a chunk in bf16; they are summed over chunks in fp32. A key thus gets
// one rounding to bf16 (relative error at most 2^-9) for every chunk that sees it, beside those
// that cuDNN makes within a call: with two chunks of equal size the error of the sum grows
// from 3.0e-3 to at most 3.2e-3. A dq of f32, which a ring wants, is converted from bf16, too.
#include "kernels/cuda/cudnn/attention_chunks.h"

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "base/shape.h"

namespace trireme::kernels::cuda {
namespace {

using base::DType;

// Rows [first, first + rows) of a causal chunk see fewer keys than the last ones.
QueryChunk part_of(const QueryChunk& c, int64_t first, int64_t rows) {
  const int64_t after = c.rows - first - rows;
  return {c.first_row + first, rows, c.first_key, c.causal ? c.end_key - after : c.end_key,
          c.causal};
}

// The parts of the workspace, as spec::attention_ranges_workspace() counts them.
struct Scratch {
  std::byte* delta;
  std::byte* dq_sum;           // null if deterministic
  std::byte *dq, *dk, *dv;     // bf16
  std::byte *dk_sum, *dv_sum;  // fp32; null if dk and dv are f32
  std::byte* cudnn;
  int64_t cudnn_bytes;
};

Scratch scratch_of(const AttentionRangesBackwardArgs& args, bool deterministic,
                   const spec::AttentionRangesCall& call) {
  const int64_t K = args.q.shape[2], keys = args.k.rows();
  std::byte* next = args.workspace.data;
  const auto take = [&](int64_t bytes) { return std::exchange(next, next + bytes); };
  const int64_t delta = base::round_up(4 * args.q.rows() * args.q.shape[1], base::grain_bytes);
  const int64_t dkv = base::round_up(2 * keys * call.kv_heads * K, base::grain_bytes);
  const int64_t sums = args.dk.dtype == DType::f32 ? 0 : 4 * keys * args.k.shape[1] * K;
  Scratch s{};
  s.delta = take(delta);
  if (!deterministic) s.dq_sum = take(delta * K);
  s.dq = take(delta * K / 2);
  s.dk = take(dkv);
  s.dv = take(dkv);
  if (sums > 0) {
    s.dk_sum = take(sums);
    s.dv_sum = take(sums);
  }
  s.cudnn = next;
  s.cudnn_bytes = args.workspace.data + args.workspace.bytes() - next;
  return s;
}

}  // namespace

bool AttentionPlans::ranges_backward(device::CudaStream& stream,
                                     const AttentionRangesBackwardArgs& args) {
  const int64_t H = args.q.shape[1], G = args.k.shape[1], K = args.q.shape[2];
  const bool deterministic = device_.options().deterministic;
  const spec::AttentionRangesCall call = spec::cuda_ranges_call(
      spec::cuda_backend(deterministic), ranges_shape_of(args, args.dk.dtype));
  std::vector<QueryChunk> parts;
  for (const QueryChunk& c : args.chunks) {
    if (is_empty(c)) continue;
    for (int64_t first = 0; first < c.rows; first += call.rows) {
      parts.push_back(part_of(c, first, std::min(call.rows, c.rows - first)));
    }
  }
  // The part with the most keys is the first: it overwrites dk and dv, the others are added.
  std::stable_sort(parts.begin(), parts.end(), [](const QueryChunk& a, const QueryChunk& b) {
    return a.end_key - a.first_key > b.end_key - b.first_key;
  });
  const int64_t begin = parts.empty() ? 0 : parts.front().first_key;
  const int64_t end = parts.empty() ? 0 : parts.front().end_key;
  const Scratch scratch = scratch_of(args, deterministic, call);
  // Nothing is queued unless everything can be.
  std::vector<Entry*> entries;
  for (int64_t g = 0; g < G; g += call.kv_heads) {
    for (const QueryChunk& part : parts) {
      const int64_t kv_heads = std::min(call.kv_heads, G - g);
      entries.push_back(ranges_backward_entry(args, part, kv_heads, scratch.cudnn_bytes));
      if (entries.back() == nullptr) return false;
    }
  }

  const bool has_sums = scratch.dk_sum != nullptr;
  const auto clear_keys = [&](int64_t first, int64_t rows) {
    for (const auto& [sum, d] : {std::pair(scratch.dk_sum, args.dk), {scratch.dv_sum, args.dv}}) {
      const HeadView to =
          has_sums ? HeadView{sum + 4 * first * G * K, G * K, K, false} : head_view(d, first, 0);
      copy_heads(stream, to, {}, {rows, G, K}, false);
    }
  };
  if (!args.accumulates) {
    for (const QueryChunk& c : args.chunks) {
      if (!is_empty(c)) continue;
      copy_heads(stream, head_view(args.dq, c.first_row, 0), {}, {c.rows, H, K}, false);
    }
    clear_keys(0, begin);
    clear_keys(end, args.k.rows() - end);
  }
  size_t next = 0;
  for (int64_t g = 0; g < G; g += call.kv_heads) {
    for (size_t i = 0; i < parts.size(); ++i) {
      ranges_backward_part(stream, args, *entries[next++], parts[i], g, i == 0);
    }
  }
  if (has_sums) {
    const HeadCount count = {args.k.rows(), G, K};
    copy_heads(stream, head_view(args.dk, 0, 0), {scratch.dk_sum, G * K, K, false}, count, false);
    copy_heads(stream, head_view(args.dv, 0, 0), {scratch.dv_sum, G * K, K, false}, count, false);
  }
  return true;
}

AttentionPlans::Entry* AttentionPlans::ranges_backward_entry(
    const AttentionRangesBackwardArgs& args, const QueryChunk& chunk, int64_t kv_heads,
    int64_t available_bytes) {
  const int64_t K = args.q.shape[2];
  AttentionKey key = key_of(chunk, args.q, args.k, args.v, args.o);
  key.kind = device_.options().deterministic ? AttentionKind::backward_deterministic
                                             : AttentionKind::backward;
  key.heads = kv_heads * (args.q.shape[1] / args.k.shape[1]);
  key.kv_heads = kv_heads;
  key.dout_stride = args.dout.row_stride;
  key.dq_stride = args.dq.dtype == DType::bf16 ? args.dq.row_stride : key.heads * K;
  key.dk_stride = key.dv_stride = kv_heads * K;
  // Only the plan that cuDNN prefers: the second one for heads 4/1 of 128 gives NaN in dq and dk.
  Entry& found = entry(key, 1);
  if (found.plans.empty()) return nullptr;
  const int64_t needed = found.plans.front().workspace_bytes();
  if (needed <= available_bytes) return &found;
  if (!std::exchange(found.has_warned, true)) {
    base::log_warning(
        "attention_ranges_backward: cuDNN is not used, which is slower: it needs a workspace of {} "
        "bytes, {} are available",
        needed, available_bytes);
  }
  return nullptr;
}

void AttentionPlans::ranges_backward_part(device::CudaStream& stream,
                                          const AttentionRangesBackwardArgs& args, Entry& found,
                                          const QueryChunk& chunk, int64_t first_kv_head,
                                          bool is_first) {
  const bool deterministic = device_.options().deterministic;
  const int64_t G = args.k.shape[1], K = args.q.shape[2], group = args.q.shape[1] / G;
  const spec::AttentionRangesCall call = spec::cuda_ranges_call(
      spec::cuda_backend(deterministic), ranges_shape_of(args, args.dk.dtype));
  const Scratch scratch = scratch_of(args, deterministic, call);
  const int64_t kv_heads = std::min(call.kv_heads, G - first_kv_head), heads = kv_heads * group;
  const int64_t first_head = first_kv_head * group;
  const bool writes_dq = args.dq.dtype == DType::bf16;
  const AttentionTensors& t = found.tensors;
  const int64_t row = chunk.first_row;
  std::vector<CudnnBinding> bindings = {
      {t.q.uid, head_at(args.q, row, first_head)},
      {t.k.uid, head_at(args.k, chunk.first_key, first_kv_head)},
      {t.v.uid, head_at(args.v, chunk.first_key, first_kv_head)},
      {t.o.uid, head_at(args.o, row, first_head)},
      {t.dout.uid, head_at(args.dout, row, first_head)},
      {t.lse.uid, const_cast<std::byte*>(args.lse.data) + 4 * (first_head * args.q.rows() + row)},
      {t.dq.uid, writes_dq ? head_at(args.dq, row, first_head) : scratch.dq},
      {t.dk.uid, scratch.dk},
      {t.dv.uid, scratch.dv},
      {t.delta.uid, scratch.delta}};
  if (!deterministic) bindings.push_back({t.dq_sum.uid, scratch.dq_sum});
  execute(stream, found, std::move(bindings), args.scale, scratch.cudnn);

  if (!writes_dq) {  // cuDNN stores its fp32 sum of dq in a private order, which cannot be read
    copy_heads(stream, head_view(args.dq, row, first_head), {scratch.dq, heads * K, K, true},
               {chunk.rows, heads, K}, args.accumulates);
  }
  const int64_t keys = chunk.end_key - chunk.first_key;
  const bool adds = args.accumulates || !is_first;
  const auto add = [&](std::byte* sum, std::byte* part, const Tensor& d) {
    const int64_t element = chunk.first_key * G * K + first_kv_head * K;
    const HeadView to = sum != nullptr ? HeadView{sum + 4 * element, G * K, K, false}
                                       : head_view(d, chunk.first_key, first_kv_head);
    copy_heads(stream, to, {part, kv_heads * K, K, true}, {keys, kv_heads, K}, adds);
  };
  add(scratch.dk_sum, scratch.dk, args.dk);
  add(scratch.dv_sum, scratch.dv, args.dv);
}

}  // namespace trireme::kernels::cuda
