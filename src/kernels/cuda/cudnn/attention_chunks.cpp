// SPDX-License-Identifier: Apache-2.0
// The forward of attention of ranges by cuDNN: a call for every chunk of rows whose keys the host
// knows. An o of f32, which a ring wants, is converted from cuDNN's bf16: its error grows
// from 2.0e-3 to 2.3e-3.
#include "kernels/cuda/cudnn/attention_chunks.h"

#include <algorithm>

#include "base/check.h"

namespace trireme::kernels::cuda {
namespace {

using base::DType;

constexpr int64_t forward_workspace_bytes = 64 << 10;  // for cuDNN, of the stream's workspace

template <typename Args>
bool chunks_are_fused(const Args& args) {
  if (args.chunks.empty() || !spec::cuda_fuses_ranges(ranges_shape_of(args, DType::f32)))
    return false;
  constexpr int64_t min_rows = 64;  // on average; for fewer, calls are too many
  if (static_cast<int64_t>(args.chunks.size()) * min_rows > args.q.rows()) return false;
  for (const QueryChunk& c : args.chunks) {
    // The first rows of a causal chunk with fewer keys than rows would see none.
    if (!is_empty(c) && c.causal && c.end_key - c.first_key < c.rows) return false;
    // Every head of lse starts on 16 bytes.
    if ((args.q.rows() | c.first_row) % 4 != 0) return false;
  }
  return is_aligned(args.q) && is_aligned(args.k) && is_aligned(args.v) && is_aligned(args.o) &&
         is_aligned(args.lse.data);
}

}  // namespace

AttentionKey key_of(const QueryChunk& chunk, const ConstTensor& q, const ConstTensor& k,
                    const ConstTensor& v, const ConstTensor& o) {
  AttentionKey key;
  key.is_causal = chunk.causal;
  key.sequences = 1;
  key.seq_len = chunk.rows;
  key.keys = chunk.end_key - chunk.first_key;
  key.heads = q.shape[1];
  key.kv_heads = k.shape[1];
  key.head_dim = q.shape[2];
  key.lse_sequence_stride = q.shape[1] * q.rows();
  key.lse_head_stride = q.rows();
  key.q_stride = q.row_stride;
  key.k_stride = k.row_stride;
  key.v_stride = v.row_stride;
  key.o_stride = o.row_stride;
  return key;
}

bool is_fused(const AttentionRangesForwardArgs& args) { return chunks_are_fused(args); }
bool is_fused(const AttentionRangesBackwardArgs& args) {
  return chunks_are_fused(args) && args.o.dtype == DType::bf16 && args.dout.dtype == DType::bf16 &&
         is_aligned(args.dout) && is_aligned(args.dq) && is_aligned(args.dk) &&
         is_aligned(args.dv) && is_aligned(args.workspace.data);
}

bool AttentionPlans::ranges_forward(device::CudaStream& stream,
                                    const AttentionRangesForwardArgs& args) {
  const int64_t rows = args.q.rows(), H = args.q.shape[1], K = args.q.shape[2];
  const int64_t G = args.k.shape[1], group = H / G;
  const Tensor workspace = stream.workspace();
  auto* lse = reinterpret_cast<float*>(args.lse.data);
  for (const QueryChunk& c : args.chunks) {
    if (is_empty(c)) {
      copy_heads(stream, head_view(args.o, c.first_row, 0), {}, {c.rows, H, K}, false);
      clear_lse(stream, lse, H, rows, c.first_row, c.rows);
      continue;
    }
    // An o of f32 is first written in bf16, as many heads at a time as the workspace holds.
    const bool writes_o = args.o.dtype == DType::bf16;
    const int64_t head_bytes = 2 * c.rows * group * K;
    const int64_t kv_heads =
        writes_o || !workspace
            ? G
            : std::min(G, (workspace.bytes() - forward_workspace_bytes) / head_bytes);
    if (kv_heads < 1) return false;
    for (int64_t g = 0; g < G; g += kv_heads) {
      const int64_t count = std::min(kv_heads, G - g), heads = count * group;
      AttentionKey key = key_of(c, args.q, args.k, args.v, args.o);
      key.heads = heads;
      key.kv_heads = count;
      if (!writes_o) key.o_stride = heads * K;
      Entry& found = entry(key, choices(stream));
      if (found.plans.empty()) return false;
      int64_t needed = 0;
      for (const CudnnPlan& plan : found.plans) needed = std::max(needed, plan.workspace_bytes());
      TRIREME_CHECK(workspace && workspace.bytes() >= forward_workspace_bytes &&
                        needed <= forward_workspace_bytes && is_aligned(workspace.data),
                    "attention_ranges_forward: cuDNN needs {} bytes, stream '{}' has a workspace "
                    "of {}",
                    needed, stream.name(), workspace ? workspace.bytes() : 0);
      std::byte* scratch = workspace.data + forward_workspace_bytes;
      const AttentionTensors& t = found.tensors;
      execute(stream, found,
              {{t.q.uid, head_at(args.q, c.first_row, g * group)},
               {t.k.uid, head_at(args.k, c.first_key, g)},
               {t.v.uid, head_at(args.v, c.first_key, g)},
               {t.o.uid, writes_o ? head_at(args.o, c.first_row, g * group) : scratch},
               {t.lse.uid, lse + g * group * rows + c.first_row}},
              args.scale, workspace.data);
      if (writes_o) continue;
      copy_heads(stream, head_view(args.o, c.first_row, g * group), {scratch, heads * K, K, true},
                 {c.rows, heads, K}, false);
    }
  }
  return true;
}

}  // namespace trireme::kernels::cuda
