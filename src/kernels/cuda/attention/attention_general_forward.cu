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

template <typename S>
__global__ void __launch_bounds__(attention_threads, 2) forward_kernel(AttentionProblem p) {
  extern __shared__ float4 attention_memory[];
  float* q = reinterpret_cast<float*>(attention_memory);
  float* kv = q + S::tile_floats;  // keys, then values of the same tile
  float* pairs = kv + S::tile_floats;
  __shared__ RowKeys ranges[S::tile];
  constexpr int n = S::per_thread;

  const int thread = static_cast<int>(threadIdx.x);
  const int tx = thread % attention_side, ty = thread / attention_side;
  // Late tiles see the most keys: they start first.
  const int block = static_cast<int>(gridDim.x - 1 - blockIdx.x);
  const int head = block % p.heads, first = block / p.heads * S::tile;
  const int kv_head = head / (p.heads / p.kv_heads);

  load_tile<S>(q, p.q, head, p.K, first, p.tokens);
  const int2 keys = load_ranges<S>(p, first, ranges);

  float highest[n], total[n], acc[n][S::columns];
#pragma unroll
  for (int i = 0; i < n; ++i) {
    highest[i] = -CUDART_INF_F;
    total[i] = 0;
#pragma unroll
    for (int c = 0; c < S::columns; ++c) acc[i][c] = 0;
  }

  for (int key0 = keys.x; key0 < keys.y; key0 += S::tile) {
    __syncthreads();  // the values of the previous tile have been read
    load_tile<S>(kv, p.k, kv_head, p.K, key0, keys.y);
    __syncthreads();
    float s[n][n] = {};
    multiply_rows<S>(s, q, kv, ty, tx);
#pragma unroll
    for (int i = 0; i < n; ++i) {
      const RowKeys& range = ranges[ty + attention_side * i];
      float top = highest[i];
#pragma unroll
      for (int j = 0; j < n; ++j) {
        const int key = key0 + tx + attention_side * j;
        const bool is_seen = key >= range.begin && key < range.end;
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
    load_tile<S>(kv, p.v, kv_head, p.K, key0, keys.y);
    __syncthreads();
    multiply_pairs<S>(acc, pairs, kv, ty, tx);
  }

#pragma unroll
  for (int i = 0; i < n; ++i) {
    const RowKeys& range = ranges[ty + attention_side * i];
    const int t = first + ty + attention_side * i;
    if (range.begin < 0) continue;
    store_row<S>(p.o, head, p.K, t, tx, acc[i], total[i] > 0 ? 1 / total[i] : 0.0F);
    if (tx == 0) p.lse[lse_index(range, p.heads, head, t)] = highest[i] + logf(total[i]);
  }
}

}  // namespace

void general_forward(const device::CudaStream& stream, const AttentionProblem& p) {
  with_tile_shape(p.K, [&](auto shape) {
    using S = decltype(shape);
    launch_tiles<S>(forward_kernel<S>, p, p.tokens, p.heads, 2 * S::tile_floats + S::pair_floats,
                    stream.handle(), "attention_forward");
  });
}

}  // namespace trireme::kernels::cuda
