// SPDX-License-Identifier: Apache-2.0
// Attention in bf16 or f16 as graphs of operations that cuDNN can fuse: sequences of equal length,
// with as many keys as queries or more, or documents of any length. The graphs follow those of
// cudnn-frontend: cuDNN recognises patterns, so operations that look superfluous are not.
#pragma once

#include <compare>
#include <cstdint>
#include <vector>

#include "kernels/cuda/cudnn/cudnn_graph.h"

namespace trireme::kernels::cuda {

enum class AttentionKind : uint8_t {
  forward,
  backward,               // dq is summed by atomics
  backward_deterministic  // needs memory for dS, which grows with the square of the length
};

// Everything that a plan depends on. Queries are [sequences * seq_len, heads, head_dim] with rows
// `*_stride` elements apart, keys [sequences * keys, kv_heads, head_dim].
//
// With is_ragged there are at most `sequences` documents of at most seq_len tokens, as many keys as
// queries, whose begins and lengths are data on the device. The backward then wants as many key
// heads as query heads, and dq, dk and dv with the strides of q, k and v.
struct AttentionKey {
  AttentionKind kind = AttentionKind::forward;
  bool is_causal = true;  // query i of seq_len sees keys j <= i + keys - seq_len, otherwise all
  bool is_ragged = false;
  bool is_f16 = false;  // otherwise bf16
  int64_t sequences = 0, seq_len = 0, keys = 0;
  int64_t heads = 0, kv_heads = 0, head_dim = 0;
  int64_t head_step = 1;  // between two query heads
  // Elements of lse between sequences (unless is_ragged), heads and tokens.
  int64_t lse_sequence_stride = 0, lse_head_stride = 0, lse_stride = 1;
  int64_t q_stride = 0, k_stride = 0, v_stride = 0, o_stride = 0;
  int64_t dout_stride = 0, dq_stride = 0, dk_stride = 0, dv_stride = 0;  // backward only

  auto operator<=>(const AttentionKey&) const = default;
};

// Where the documents begin in tensors with rows `stride` elements apart: [sequences + 1] i64.
struct AttentionOffsets {
  int64_t stride = 0;
  CudnnTensor tensor;
};

// The tensors of a graph that are bound to memory; tensors that a kind does not have keep uid 0.
struct AttentionTensors {
  CudnnTensor q, k, v, o, lse;               // all
  CudnnTensor scale;                         // all; fp32 on the host
  CudnnTensor minus_infinity;                // if there is a mask; fp32 on the host
  CudnnTensor query_count, key_count;        // causal with more keys than queries; i32 on the host
  CudnnTensor dout, dq, dk, dv, delta, one;  // backward; delta is fp32 [sequences, heads, T]
  // Kind backward: fp32 [sequences, heads, T, K]; is_ragged: with the strides of dq.
  CudnnTensor dq_sum;
  // is_ragged: lengths of documents as queries and as keys, i32 [sequences]; begins of documents.
  // delta has the strides of lse.
  CudnnTensor query_lengths, key_lengths;
  std::vector<AttentionOffsets> offsets;
};

AttentionTensors build_attention(CudnnGraph& graph, const AttentionKey& key);

}  // namespace trireme::kernels::cuda
