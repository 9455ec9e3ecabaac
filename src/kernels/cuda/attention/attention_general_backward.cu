// SPDX-License-Identifier: Apache-2.0
// With p = exp(scale q k - lse), dp = dout v, delta = sum over K of dout * o (Dao et al., 2022):
//   ds = scale p (dp - delta);  dq = ds k;  dv = p^T dout;  dk = ds^T q.
//
// Two kernels after delta, so that every sum is computed by one thread block in one order: dq, a
// block for a tile of queries; dk and dv, a block for a tile of keys, over all query heads that
// read it. Scores are computed twice: 14 K FLOPs per pair of the tiles visited instead of 10 K.
#include "kernels/cuda/attention/attention_tiles.cuh"

namespace trireme::kernels::cuda {
namespace {

template <typename S>
__global__ void __launch_bounds__(attention_threads, S::width <= 64 ? 2 : 1)
    dq_kernel(AttentionProblem p) {
  extern __shared__ float4 attention_memory[];
  float* q = reinterpret_cast<float*>(attention_memory);
  float* dout = q + S::tile_floats;
  float* k = dout + S::tile_floats;
  float* v = k + S::tile_floats;
  float* pairs = v + S::tile_floats;
  __shared__ RowKeys ranges[S::tile];
  constexpr int n = S::per_thread;

  const int thread = static_cast<int>(threadIdx.x);
  const int tx = thread % attention_side, ty = thread / attention_side;
  const int block = static_cast<int>(gridDim.x - 1 - blockIdx.x);  // late tiles see the most keys
  const int head = block % p.heads, first = block / p.heads * S::tile;
  const int kv_head = head / (p.heads / p.kv_heads);

  load_tile<S>(q, p.q, head, p.K, first, p.tokens);
  load_tile<S>(dout, p.dout, head, p.K, first, p.tokens);
  const int2 keys = load_ranges<S>(p, first, ranges);

  float lse[n], delta[n], acc[n][S::columns];
#pragma unroll
  for (int i = 0; i < n; ++i) {
    const int r = ty + attention_side * i;
    const bool sees_keys = ranges[r].begin < ranges[r].end;
    lse[i] = sees_keys ? p.lse[lse_index(ranges[r], p.heads, head, first + r)] : 0.0F;
    delta[i] = sees_keys ? p.delta[static_cast<int64_t>(head) * p.tokens + first + r] : 0.0F;
#pragma unroll
    for (int c = 0; c < S::columns; ++c) acc[i][c] = 0;
  }

  for (int key0 = keys.x; key0 < keys.y; key0 += S::tile) {
    __syncthreads();  // the previous tile has been read
    load_tile<S>(k, p.k, kv_head, p.K, key0, keys.y);
    load_tile<S>(v, p.v, kv_head, p.K, key0, keys.y);
    __syncthreads();
    float s[n][n] = {}, dp[n][n] = {};
    multiply_rows<S>(s, q, k, ty, tx);
    multiply_rows<S>(dp, dout, v, ty, tx);
#pragma unroll
    for (int i = 0; i < n; ++i) {
      const RowKeys& range = ranges[ty + attention_side * i];
#pragma unroll
      for (int j = 0; j < n; ++j) {
        const int key = key0 + tx + attention_side * j;
        const bool is_seen = key >= range.begin && key < range.end;
        const float prob = expf(s[i][j] * p.scale - lse[i]);
        pairs[(ty + attention_side * i) * S::pair_pitch + tx + attention_side * j] =
            is_seen ? prob * (dp[i][j] - delta[i]) * p.scale : 0.0F;
      }
    }
    __syncwarp();  // a row of pairs is written and read by one half of a warp
    multiply_pairs<S>(acc, pairs, k, ty, tx);
  }

#pragma unroll
  for (int i = 0; i < n; ++i) {
    const int r = ty + attention_side * i;
    if (ranges[r].begin >= 0) {
      store_row<S>(p.dq, head, p.K, first + r, tx, acc[i], 1, p.accumulates);
    }
  }
}

// Here rows of pairs are keys, and columns queries.
template <typename S>
__global__ void __launch_bounds__(attention_threads, S::width <= 64 ? 2 : 1)
    dkv_kernel(AttentionProblem p) {
  extern __shared__ float4 attention_memory[];
  float* k = reinterpret_cast<float*>(attention_memory);
  float* v = k + S::tile_floats;
  float* q = v + S::tile_floats;
  float* dout = q + S::tile_floats;
  float* pairs = dout + S::tile_floats;  // p, then ds
  __shared__ RowKeys ranges[S::tile];    // of each query
  __shared__ float lse[S::tile], delta[S::tile];
  constexpr int n = S::per_thread;

  const int thread = static_cast<int>(threadIdx.x);
  const int tx = thread % attention_side, ty = thread / attention_side;
  // Early tiles are seen by the most queries: they start first.
  const int block = static_cast<int>(blockIdx.x);
  const int kv_head = block % p.kv_heads, first = block / p.kv_heads * S::tile;
  const int group = p.heads / p.kv_heads;

  load_tile<S>(k, p.k, kv_head, p.K, first, p.keys);
  load_tile<S>(v, p.v, kv_head, p.K, first, p.keys);

  float dk[n][S::columns], dv[n][S::columns];
#pragma unroll
  for (int i = 0; i < n; ++i) {
#pragma unroll
    for (int c = 0; c < S::columns; ++c) dk[i][c] = dv[i][c] = 0;
  }

  for (int head = kv_head * group; head < (kv_head + 1) * group; ++head) {
    for (int query0 = 0; query0 < p.tokens; query0 += S::tile) {
      const TileKeys tile = p.tiles[query0 / tile_rows];
      if (tile.end <= first || tile.begin >= first + S::tile) continue;
      __syncthreads();  // the previous tile has been read
      load_tile<S>(q, p.q, head, p.K, query0, p.tokens);
      load_tile<S>(dout, p.dout, head, p.K, query0, p.tokens);
      load_ranges<S>(p, query0, ranges);
      if (thread < S::tile) {
        const bool sees_keys = ranges[thread].begin < ranges[thread].end;
        const int t = query0 + thread;
        lse[thread] = sees_keys ? p.lse[lse_index(ranges[thread], p.heads, head, t)] : 0.0F;
        delta[thread] = sees_keys ? p.delta[static_cast<int64_t>(head) * p.tokens + t] : 0.0F;
      }
      __syncthreads();
      float s[n][n] = {}, dp[n][n] = {};
      multiply_rows<S>(s, k, q, ty, tx);
      multiply_rows<S>(dp, v, dout, ty, tx);
#pragma unroll
      for (int i = 0; i < n; ++i) {
#pragma unroll
        for (int j = 0; j < n; ++j) {
          const int column = tx + attention_side * j;
          const int key = first + ty + attention_side * i;
          const bool is_seen = key >= ranges[column].begin && key < ranges[column].end;
          const float prob = is_seen ? expf(s[i][j] * p.scale - lse[column]) : 0.0F;
          dp[i][j] = is_seen ? prob * (dp[i][j] - delta[column]) * p.scale : 0.0F;
          pairs[(ty + attention_side * i) * S::pair_pitch + column] = prob;
        }
      }
      __syncwarp();  // a row of pairs is written and read by one half of a warp
      multiply_pairs<S>(dv, pairs, dout, ty, tx);
      __syncwarp();
#pragma unroll
      for (int i = 0; i < n; ++i) {
#pragma unroll
        for (int j = 0; j < n; ++j) {
          pairs[(ty + attention_side * i) * S::pair_pitch + tx + attention_side * j] = dp[i][j];
        }
      }
      __syncwarp();
      multiply_pairs<S>(dk, pairs, q, ty, tx);
    }
  }

#pragma unroll
  for (int i = 0; i < n; ++i) {
    const int r = ty + attention_side * i;
    const int key = first + r;
    if (key >= p.keys || (p.is_self && p.rows[key].begin < 0)) continue;
    store_row<S>(p.dk, kv_head, p.K, key, tx, dk[i], 1, p.accumulates);
    store_row<S>(p.dv, kv_head, p.K, key, tx, dv[i], 1, p.accumulates);
  }
}

}  // namespace

void general_dq(const device::CudaStream& stream, const AttentionProblem& p) {
  with_tile_shape(p.K, [&](auto shape) {
    using S = decltype(shape);
    launch_tiles<S>(dq_kernel<S>, p, p.tokens, p.heads, 4 * S::tile_floats + S::pair_floats,
                    stream.handle(), "attention_backward dq");
  });
}

void general_dkv(const device::CudaStream& stream, const AttentionProblem& p) {
  with_tile_shape(p.K, [&](auto shape) {
    using S = decltype(shape);
    launch_tiles<S>(dkv_kernel<S>, p, p.keys, p.kv_heads, 4 * S::tile_floats + S::pair_floats,
                    stream.handle(), "attention_backward dkv");
  });
}

}  // namespace trireme::kernels::cuda
