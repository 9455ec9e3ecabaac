// SPDX-License-Identifier: Apache-2.0
// o = softmax(scale q k^T + mask) v with online softmax: a block takes one tile of queries of one
// head, visits the tiles of keys that any of them sees, and keeps for each query the highest
// score m, the sum l of exp(score - m) and the weighted sum of values. lse = m + log l.
//
// FLOPs: 4 K per pair of the tiles visited. Per 64 fused multiply-adds a thread reads 8 x 16 bytes
// of shared memory, which limits it to about half of the fp32 peak.
#include <math_constants.h>

#include "kernels/cuda/attention/attention_tiles.cuh"

namespace trireme::kernels::cuda {
namespace {

template <typename E>
struct ForwardParams {
  HeadRows<const E> q, k, v;
  HeadRows<E> o;
  float* lse;
  Sequences sequences;
  int tokens, heads, kv_heads, K;
  float scale;
  bool causal;
};

template <typename S, typename E>
__global__ void __launch_bounds__(attention_threads, 2) forward_kernel(ForwardParams<E> p) {
  extern __shared__ float4 attention_memory[];
  float* q = reinterpret_cast<float*>(attention_memory);
  float* kv = q + S::tile_floats;  // keys, then values of the same tile
  float* pairs = kv + S::tile_floats;
  __shared__ Span sequence[S::tile];  // of each query
  constexpr int n = S::per_thread;

  const int thread = static_cast<int>(threadIdx.x);
  const int tx = thread % attention_side, ty = thread / attention_side;
  // Late tiles see the most keys: they start first.
  const int block = static_cast<int>(gridDim.x - 1 - blockIdx.x);
  const int head = block % p.heads, first = block / p.heads * S::tile;
  const int kv_head = head / (p.heads / p.kv_heads);
  const int rows = min(S::tile, p.tokens - first);

  if (thread < S::tile) sequence[thread] = p.sequences.of(min(first + thread, p.tokens - 1));
  load_tile<S>(q, p.q, head, p.K, first, p.tokens);
  __syncthreads();

  Span seen[n];  // keys that the query sees
  float highest[n], total[n], acc[n][S::columns];
#pragma unroll
  for (int i = 0; i < n; ++i) {
    const int r = ty + attention_side * i;
    const int end = p.causal ? first + r + 1 : sequence[r].end;
    seen[i] = {sequence[r].begin, r < rows ? end : sequence[r].begin};
    highest[i] = -CUDART_INF_F;
    total[i] = 0;
#pragma unroll
    for (int c = 0; c < S::columns; ++c) acc[i][c] = 0;
  }

  const int keys_end = p.causal ? first + rows : sequence[rows - 1].end;
  for (int key0 = sequence[0].begin; key0 < keys_end; key0 += S::tile) {
    __syncthreads();  // the values of the previous tile have been read
    load_tile<S>(kv, p.k, kv_head, p.K, key0, keys_end);
    __syncthreads();
    float s[n][n] = {};
    multiply_rows<S>(s, q, kv, ty, tx);
#pragma unroll
    for (int i = 0; i < n; ++i) {
      float top = highest[i];
#pragma unroll
      for (int j = 0; j < n; ++j) {
        const int key = key0 + tx + attention_side * j;
        const bool is_seen = key >= seen[i].begin && key < seen[i].end;
        s[i][j] = is_seen ? s[i][j] * p.scale : -CUDART_INF_F;
        top = fmaxf(top, s[i][j]);
      }
      top = row_max(top);
      const float shift = top == -CUDART_INF_F ? 0.0F : top;  // nothing seen so far
      const float factor = expf(highest[i] - shift);
      highest[i] = top;
      float sum = 0;
#pragma unroll
      for (int j = 0; j < n; ++j) {
        const float e = expf(s[i][j] - shift);
        pairs[(ty + attention_side * i) * S::pair_pitch + tx + attention_side * j] = e;
        sum += e;
      }
      total[i] = total[i] * factor + row_sum(sum);
#pragma unroll
      for (int c = 0; c < S::columns; ++c) acc[i][c] *= factor;
    }
    __syncthreads();  // the keys have been read
    load_tile<S>(kv, p.v, kv_head, p.K, key0, keys_end);
    __syncthreads();
    multiply_pairs<S>(acc, pairs, kv, ty, tx);
  }

#pragma unroll
  for (int i = 0; i < n; ++i) {
    const int r = ty + attention_side * i;
    if (r >= rows) continue;
    store_row<S>(p.o, head, p.K, first + r, tx, acc[i], 1 / total[i]);
    if (tx == 0) {
      p.lse[lse_index(sequence[r], p.heads, head, first + r)] = highest[i] + logf(total[i]);
    }
  }
}

}  // namespace

void general_attention_forward(const device::CudaStream& stream, const AttentionForwardArgs& args) {
  with_real_type(args.q.dtype, [&](auto* type) {
    using E = std::remove_pointer_t<decltype(type)>;
    const ForwardParams<E> params = {.q = head_rows<E>(args.q),
                                     .k = head_rows<E>(args.k),
                                     .v = head_rows<E>(args.v),
                                     .o = head_rows<E>(args.o),
                                     .lse = data<float>(args.lse),
                                     .sequences = sequences_of(args),
                                     .tokens = static_cast<int>(args.q.rows()),
                                     .heads = static_cast<int>(args.q.shape[1]),
                                     .kv_heads = static_cast<int>(args.k.shape[1]),
                                     .K = static_cast<int>(args.q.shape[2]),
                                     .scale = args.scale,
                                     .causal = args.causal};
    with_tile_shape(params.K, [&](auto shape) {
      using S = decltype(shape);
      launch_tiles<S>(forward_kernel<S, E>, params, params.heads,
                      2 * S::tile_floats + S::pair_floats, stream.handle(), "attention_forward");
    });
  });
}

}  // namespace trireme::kernels::cuda
