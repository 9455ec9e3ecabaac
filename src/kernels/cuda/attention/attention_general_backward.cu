// SPDX-License-Identifier: Apache-2.0
// With p = exp(scale q k - lse), dp = dout v, delta = sum over K of dout * o (Dao et al., 2022):
//   ds = scale p (dp - delta);  dq = ds k;  dv = p^T dout;  dk = ds^T q.
//
// Three kernels, so that every sum is computed by one thread block in one order: delta; dq, a block
// for a tile of queries; dk and dv, a block for a tile of keys, over all query heads that read it.
// Scores are computed twice: 14 K FLOPs per pair of the tiles visited instead of 10 K.
#include "kernels/cuda/attention/attention_tiles.cuh"

namespace trireme::kernels::cuda {
namespace {

template <typename E>
struct BackwardParams {
  HeadRows<const E> q, k, v, o, dout;
  HeadRows<E> dq, dk, dv;
  const float* lse;
  float* delta;  // [H, T]
  Sequences sequences;
  int tokens, heads, kv_heads, K;
  float scale;
  bool causal;

  __device__ float* delta_at(int head, int t) const {
    return delta + static_cast<int64_t>(head) * tokens + t;
  }
};

// A warp for each token and head. Reads 2 T H K elements, a small part of the whole backward.
template <typename E>
__global__ void __launch_bounds__(attention_threads) delta_kernel(BackwardParams<E> p) {
  const int64_t row =
      static_cast<int64_t>(blockIdx.x) * (attention_threads / warp_size) + threadIdx.x / warp_size;
  if (row >= static_cast<int64_t>(p.tokens) * p.heads) return;
  const int t = static_cast<int>(row / p.heads), head = static_cast<int>(row % p.heads);
  const int64_t column = static_cast<int64_t>(head) * p.K;
  const E* o = p.o.data + t * p.o.row_stride + column;
  const E* dout = p.dout.data + t * p.dout.row_stride + column;
  const int lane = static_cast<int>(threadIdx.x) % warp_size;
  float sum = 0;
  for (int c = lane; c < p.K; c += warp_size) sum += load(o + c) * load(dout + c);
  sum = warp_sum(sum);
  if (lane == 0) *p.delta_at(head, t) = sum;
}

template <typename S, typename E>
__global__ void __launch_bounds__(attention_threads, S::width <= 64 ? 2 : 1)
    dq_kernel(BackwardParams<E> p) {
  extern __shared__ float4 attention_memory[];
  float* q = reinterpret_cast<float*>(attention_memory);
  float* dout = q + S::tile_floats;
  float* k = dout + S::tile_floats;
  float* v = k + S::tile_floats;
  float* pairs = v + S::tile_floats;
  __shared__ Span sequence[S::tile];  // of each query
  constexpr int n = S::per_thread;

  const int thread = static_cast<int>(threadIdx.x);
  const int tx = thread % attention_side, ty = thread / attention_side;
  const int block = static_cast<int>(gridDim.x - 1 - blockIdx.x);  // late tiles see the most keys
  const int head = block % p.heads, first = block / p.heads * S::tile;
  const int kv_head = head / (p.heads / p.kv_heads);
  const int rows = min(S::tile, p.tokens - first);

  if (thread < S::tile) sequence[thread] = p.sequences.of(min(first + thread, p.tokens - 1));
  load_tile<S>(q, p.q, head, p.K, first, p.tokens);
  load_tile<S>(dout, p.dout, head, p.K, first, p.tokens);
  __syncthreads();

  Span seen[n];  // keys that the query sees
  float lse[n], delta[n], acc[n][S::columns];
#pragma unroll
  for (int i = 0; i < n; ++i) {
    const int r = ty + attention_side * i;
    const int end = p.causal ? first + r + 1 : sequence[r].end;
    seen[i] = {sequence[r].begin, r < rows ? end : sequence[r].begin};
    lse[i] = r < rows ? p.lse[lse_index(sequence[r], p.heads, head, first + r)] : 0.0F;
    delta[i] = r < rows ? *p.delta_at(head, first + r) : 0.0F;
#pragma unroll
    for (int c = 0; c < S::columns; ++c) acc[i][c] = 0;
  }

  const int keys_end = p.causal ? first + rows : sequence[rows - 1].end;
  for (int key0 = sequence[0].begin; key0 < keys_end; key0 += S::tile) {
    __syncthreads();  // the previous tile has been read
    load_tile<S>(k, p.k, kv_head, p.K, key0, keys_end);
    load_tile<S>(v, p.v, kv_head, p.K, key0, keys_end);
    __syncthreads();
    float s[n][n] = {}, dp[n][n] = {};
    multiply_rows<S>(s, q, k, ty, tx);
    multiply_rows<S>(dp, dout, v, ty, tx);
#pragma unroll
    for (int i = 0; i < n; ++i) {
#pragma unroll
      for (int j = 0; j < n; ++j) {
        const int key = key0 + tx + attention_side * j;
        const bool is_seen = key >= seen[i].begin && key < seen[i].end;
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
    if (r < rows) store_row<S>(p.dq, head, p.K, first + r, tx, acc[i], 1);
  }
}

// Here rows of pairs are keys, and columns queries.
template <typename S, typename E>
__global__ void __launch_bounds__(attention_threads, S::width <= 64 ? 2 : 1)
    dkv_kernel(BackwardParams<E> p) {
  extern __shared__ float4 attention_memory[];
  float* k = reinterpret_cast<float*>(attention_memory);
  float* v = k + S::tile_floats;
  float* q = v + S::tile_floats;
  float* dout = q + S::tile_floats;
  float* pairs = dout + S::tile_floats;  // p, then ds
  __shared__ Span sequence[S::tile];     // of each key
  __shared__ float lse[S::tile], delta[S::tile];
  constexpr int n = S::per_thread;

  const int thread = static_cast<int>(threadIdx.x);
  const int tx = thread % attention_side, ty = thread / attention_side;
  // Early tiles are seen by the most queries: they start first.
  const int block = static_cast<int>(blockIdx.x);
  const int kv_head = block % p.kv_heads, first = block / p.kv_heads * S::tile;
  const int group = p.heads / p.kv_heads;
  const int rows = min(S::tile, p.tokens - first);

  if (thread < S::tile) sequence[thread] = p.sequences.of(min(first + thread, p.tokens - 1));
  load_tile<S>(k, p.k, kv_head, p.K, first, p.tokens);
  load_tile<S>(v, p.v, kv_head, p.K, first, p.tokens);
  __syncthreads();

  Span seen_by[n];  // queries that see the key
  float dk[n][S::columns], dv[n][S::columns];
#pragma unroll
  for (int i = 0; i < n; ++i) {
    const int r = ty + attention_side * i;
    seen_by[i] = {p.causal ? first + r : sequence[r].begin, r < rows ? sequence[r].end : 0};
#pragma unroll
    for (int c = 0; c < S::columns; ++c) dk[i][c] = dv[i][c] = 0;
  }

  const int queries_begin = p.causal ? first : sequence[0].begin;
  const int queries_end = sequence[rows - 1].end;
  for (int head = kv_head * group; head < (kv_head + 1) * group; ++head) {
    for (int query0 = queries_begin; query0 < queries_end; query0 += S::tile) {
      __syncthreads();  // the previous tile has been read
      load_tile<S>(q, p.q, head, p.K, query0, queries_end);
      load_tile<S>(dout, p.dout, head, p.K, query0, queries_end);
      if (thread < S::tile) {
        // A query before (after) these keys belongs to the sequence of the first (last) of them.
        const int t = query0 + thread;
        const Span own = sequence[min(max(t - first, 0), rows - 1)];
        const bool exists = t < queries_end;
        lse[thread] = exists ? p.lse[lse_index(own, p.heads, head, t)] : 0.0F;
        delta[thread] = exists ? *p.delta_at(head, t) : 0.0F;
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
          const int query = query0 + column;
          const bool is_seen = query >= seen_by[i].begin && query < seen_by[i].end;
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
    if (r >= rows) continue;
    store_row<S>(p.dk, kv_head, p.K, first + r, tx, dk[i], 1);
    store_row<S>(p.dv, kv_head, p.K, first + r, tx, dv[i], 1);
  }
}

template <typename E>
BackwardParams<E> params_of(const AttentionBackwardArgs& args) {
  return {.q = head_rows<E>(args.q),
          .k = head_rows<E>(args.k),
          .v = head_rows<E>(args.v),
          .o = head_rows<E>(args.o),
          .dout = head_rows<E>(args.dout),
          .dq = head_rows<E>(args.dq),
          .dk = head_rows<E>(args.dk),
          .dv = head_rows<E>(args.dv),
          .lse = data<float>(args.lse),
          .delta = data<float>(args.workspace),
          .sequences = sequences_of(args),
          .tokens = static_cast<int>(args.q.rows()),
          .heads = static_cast<int>(args.q.shape[1]),
          .kv_heads = static_cast<int>(args.k.shape[1]),
          .K = static_cast<int>(args.q.shape[2]),
          .scale = args.scale,
          .causal = args.causal};
}

}  // namespace

void general_attention_backward(const device::CudaStream& stream,
                                const AttentionBackwardArgs& args) {
  const int64_t delta_rows = args.q.rows() * args.q.shape[1];
  TRIREME_CHECK(args.workspace && args.workspace.dtype == base::DType::f32 &&
                    args.workspace.is_contiguous() && args.workspace.elements() >= delta_rows,
                "attention_backward: workspace {} for {} sums of dout * o",
                args.workspace.shape.to_string(), delta_rows);
  with_real_type(args.q.dtype, [&](auto* type) {
    using E = std::remove_pointer_t<decltype(type)>;
    const BackwardParams<E> params = params_of<E>(args);
    with_tile_shape(params.K, [&](auto shape) {
      using S = decltype(shape);
      constexpr int64_t floats = 4 * S::tile_floats + S::pair_floats;
      const int64_t delta_blocks = ceil_div(delta_rows, attention_threads / warp_size);
      delta_kernel<E>
          <<<static_cast<unsigned>(delta_blocks), attention_threads, 0, stream.handle()>>>(params);
      check_launch("attention_backward delta");
      launch_tiles<S>(dq_kernel<S, E>, params, params.heads, floats, stream.handle(),
                      "attention_backward dq");
      launch_tiles<S>(dkv_kernel<S, E>, params, params.kv_heads, floats, stream.handle(),
                      "attention_backward dkv");
    });
  });
}

}  // namespace trireme::kernels::cuda
