// SPDX-License-Identifier: Apache-2.0
// Causal attention in bf16 over sequences of equal length, as graphs of operations that cuDNN can
// fuse. The graphs follow those of cudnn-frontend: cuDNN recognises patterns, so operations that
// look superfluous are not.
#pragma once

#include <compare>
#include <cstdint>

#include "kernels/cuda/attention/cudnn_graph.h"

namespace trireme::kernels::cuda {

enum class AttentionKind : uint8_t {
  forward,
  backward,               // dq is summed by atomics
  backward_deterministic  // needs memory for dS, which grows with the square of the length
};

// Everything that a plan depends on. Tensors are [sequences * seq_len, heads or kv_heads, head_dim]
// with rows `*_stride` elements apart.
struct AttentionKey {
  AttentionKind kind = AttentionKind::forward;
  int64_t sequences = 0, seq_len = 0;
  int64_t heads = 0, kv_heads = 0, head_dim = 0;
  int64_t lse_heads = 0;  // heads between two sequences of lse
  int64_t q_stride = 0, k_stride = 0, v_stride = 0, o_stride = 0;
  int64_t dout_stride = 0, dq_stride = 0, dk_stride = 0, dv_stride = 0;  // backward only

  auto operator<=>(const AttentionKey&) const = default;
};

// The tensors of a graph that are bound to memory; tensors that a kind does not have keep uid 0.
struct AttentionTensors {
  CudnnTensor q, k, v, o, lse;               // all
  CudnnTensor scale, minus_infinity;         // all; fp32 on the host
  CudnnTensor dout, dq, dk, dv, delta, one;  // backward; delta is fp32 [sequences, heads, T]
  CudnnTensor dq_sum;                        // kind backward: fp32 [sequences, heads, T, K]
};

AttentionTensors build_attention(CudnnGraph& graph, const AttentionKey& key);

}  // namespace trireme::kernels::cuda
