// SPDX-License-Identifier: Apache-2.0
// With p = exp(scale q k - lse), dp = dout v, delta = sum over K of dout * o (Dao et al., 2022):
//   ds = scale p (dp - delta);  dq = ds k;  dv = p^T dout;  dk = ds^T q.
//
// Two kernels on tensor cores, so that every sum is computed by one block in one order: dq, a block
// for 64 queries; dk and dv, a block for 64 keys, over all query heads that read them. Scores are
// computed twice: 14 K FLOPs per pair of the tiles visited instead of 10 K. p and ds are rounded to
// bf16 before they are multiplied. The next tiles are loaded while the present ones are used.
#include <climits>

#include "kernels/cuda/attention/attention_mma.cuh"

namespace trireme::kernels::cuda {
namespace {

template <int K>
__global__ void __launch_bounds__(mma_threads, 2) mma_dq_kernel(AttentionProblem p) {
  extern __shared__ float4 attention_memory[];
  constexpr uint32_t bytes = MmaTile<K>::bytes;
  const uint32_t q = shared_address(attention_memory), dout = q + bytes, keys = dout + bytes;

  const int lane = static_cast<int>(threadIdx.x) % warp_size;
  const int row = static_cast<int>(threadIdx.x) / warp_size * 16;
  const int block = static_cast<int>(gridDim.x - 1 - blockIdx.x);  // late tiles see the most keys
  const int head = block % p.heads, tile = block / p.heads, first = tile * tile_rows;
  const int kv_head = head / (p.heads / p.kv_heads);
  const TileKeys seen = p.tiles[tile];
  const int query[2] = {first + row + lane / 4, first + row + lane / 4 + 8};
  const RowKeys range[2] = {range_of(p, query[0]), range_of(p, query[1])};
  const float scale = p.scale * log2_e;

  float lse[2], delta[2];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const bool sees_keys = range[half].begin < range[half].end;
    const int t = query[half];
    lse[half] = sees_keys ? p.lse[lse_index(range[half], p.heads, head, t)] * log2_e : 0.0F;
    delta[half] = sees_keys ? p.delta[static_cast<int64_t>(head) * p.tokens + t] : 0.0F;
  }
  float acc[MmaTile<K>::columns][4] = {};
  const auto load_keys = [&](int key0, uint32_t stage) {
    load_rows<K>(keys + stage * 2 * bytes, p.k, kv_head, key0, seen.end);
    load_rows<K>(keys + stage * 2 * bytes + bytes, p.v, kv_head, key0, seen.end);
    commit_copies();
  };
  if (seen.begin < seen.end) {
    load_rows<K>(q, p.q, head, first, p.tokens);
    load_rows<K>(dout, p.dout, head, first, p.tokens);
    load_keys(seen.begin, 0);
  }
  uint32_t stage = 0;
  for (int key0 = seen.begin; key0 < seen.end; key0 += mma_side, stage ^= 1U) {
    wait_for_copies();
    __syncthreads();  // this tile is there, and the previous one has been read
    if (key0 + mma_side < seen.end) load_keys(key0 + mma_side, stage ^ 1U);
    const uint32_t k = keys + stage * 2 * bytes;
    float s[pair_columns][4] = {}, dp[pair_columns][4] = {};
    multiply_rows<K>(s, q, row, k);
    multiply_rows<K>(dp, dout, row, k + bytes);
    const bool is_whole = key0 >= seen.all_begin && key0 + mma_side <= seen.all_end;
#pragma unroll
    for (int j = 0; j < pair_columns; ++j) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int key = key0 + j * 8 + lane % 4 * 2 + e % 2, half = e / 2;
        const bool is_seen = is_whole || (key >= range[half].begin && key < range[half].end);
        const float prob = exp2f(fmaf(s[j][e], scale, -lse[half]));
        s[j][e] = is_seen ? prob * (dp[j][e] - delta[half]) * p.scale : 0.0F;
      }
    }
    multiply_pairs<K>(acc, s, k);
  }

#pragma unroll
  for (int half = 0; half < 2; ++half) {
    if (range[half].begin < 0) continue;
    store_half<K>(p.dq, head, query[half], acc, half, 1, p.accumulates);
  }
}

// Here rows of pairs are keys, and columns queries.
template <int K>
__global__ void __launch_bounds__(mma_threads, 2) mma_dkv_kernel(AttentionProblem p) {
  extern __shared__ float4 attention_memory[];
  constexpr uint32_t bytes = MmaTile<K>::bytes;
  const uint32_t k = shared_address(attention_memory), v = k + bytes, queries = v + bytes;
  __shared__ RowKeys ranges[2][tile_rows];
  __shared__ float2 statistics[2][tile_rows];  // lse, in bits, and delta
  __shared__ int first_tile, end_tile;

  const int thread = static_cast<int>(threadIdx.x), lane = thread % warp_size;
  const int row = thread / warp_size * 16;
  const int block = static_cast<int>(blockIdx.x);  // early tiles are seen by the most queries
  const int kv_head = block % p.kv_heads, first = block / p.kv_heads * tile_rows;
  const int group = p.heads / p.kv_heads;
  const int tiles = (p.tokens + tile_rows - 1) / tile_rows;
  const float scale = p.scale * log2_e;

  // The tiles of queries of which any sees these keys.
  const auto sees = [&](int tile) {
    const TileKeys seen = p.tiles[tile];
    return seen.begin < first + tile_rows && seen.end > first;
  };
  if (thread == 0) {
    first_tile = INT_MAX;
    end_tile = 0;
  }
  __syncthreads();
  for (int tile = thread; tile < tiles; tile += mma_threads) {
    if (!sees(tile)) continue;
    atomicMin(&first_tile, tile);
    atomicMax(&end_tile, tile + 1);
  }
  __syncthreads();
  const int begin_tile = first_tile, last_tile = end_tile;
  const int steps_of_head = max(last_tile - begin_tile, 0), steps = steps_of_head * group;
  // The first step from `step` on whose queries see these keys.
  const auto next_step = [&](int step) {
    while (step < steps && !sees(begin_tile + step % steps_of_head)) ++step;
    return step;
  };
  const auto load_queries = [&](int step, uint32_t stage) {
    const int head = kv_head * group + step / steps_of_head;
    const int query0 = (begin_tile + step % steps_of_head) * tile_rows;
    load_rows<K>(queries + stage * 2 * bytes, p.q, head, query0, p.tokens);
    load_rows<K>(queries + stage * 2 * bytes + bytes, p.dout, head, query0, p.tokens);
    commit_copies();
    if (thread < tile_rows) {
      const int t = query0 + thread;
      const RowKeys range = range_of(p, t);
      const bool sees_keys = range.begin < range.end;
      ranges[stage][thread] = range;
      statistics[stage][thread] = {
          sees_keys ? p.lse[lse_index(range, p.heads, head, t)] * log2_e : 0.0F,
          sees_keys ? p.delta[static_cast<int64_t>(head) * p.tokens + t] : 0.0F};
    }
  };

  float dk[MmaTile<K>::columns][4] = {}, dv[MmaTile<K>::columns][4] = {};
  int step = next_step(0);
  if (step < steps) {
    load_rows<K>(k, p.k, kv_head, first, p.keys);
    load_rows<K>(v, p.v, kv_head, first, p.keys);
    load_queries(step, 0);
  }
  for (uint32_t stage = 0; step < steps; stage ^= 1U) {
    wait_for_copies();
    __syncthreads();  // this tile is there, and the previous one has been read
    const TileKeys seen = p.tiles[begin_tile + step % steps_of_head];
    const bool is_whole = first >= seen.all_begin && first + tile_rows <= seen.all_end;
    step = next_step(step + 1);
    if (step < steps) load_queries(step, stage ^ 1U);
    const uint32_t q = queries + stage * 2 * bytes, dout = q + bytes;
    float s[pair_columns][4] = {}, dp[pair_columns][4] = {};
    multiply_rows<K>(s, k, row, q);
#pragma unroll
    for (int j = 0; j < pair_columns; ++j) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int column = j * 8 + lane % 4 * 2 + e % 2;
        const int key = first + row + lane / 4 + e / 2 * 8;
        const float prob = exp2f(fmaf(s[j][e], scale, -statistics[stage][column].x));
        const bool is_seen =
            is_whole || (key >= ranges[stage][column].begin && key < ranges[stage][column].end);
        s[j][e] = is_seen ? prob : 0.0F;
      }
    }
    multiply_pairs<K>(dv, s, dout);
    multiply_rows<K>(dp, v, row, dout);
#pragma unroll
    for (int j = 0; j < pair_columns; ++j) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int column = j * 8 + lane % 4 * 2 + e % 2;
        s[j][e] *= (dp[j][e] - statistics[stage][column].y) * p.scale;
      }
    }
    multiply_pairs<K>(dk, s, q);
  }

#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int key = first + row + lane / 4 + half * 8;
    if (key >= p.keys || (p.is_self && p.rows[key].begin < 0)) continue;
    store_half<K>(p.dk, kv_head, key, dk, half, 1, p.accumulates);
    store_half<K>(p.dv, kv_head, key, dv, half, 1, p.accumulates);
  }
}

constexpr int backward_tiles = 6;  // in shared memory

}  // namespace

void tensor_core_dq(const device::CudaStream& stream, const AttentionProblem& p) {
  const auto kernel = p.K == 64 ? mma_dq_kernel<64> : mma_dq_kernel<128>;
  launch_mma(kernel, p, p.tokens, p.heads, backward_tiles * tile_rows * p.K * 2, stream.handle(),
             "attention_backward dq");
}

void tensor_core_dkv(const device::CudaStream& stream, const AttentionProblem& p) {
  const auto kernel = p.K == 64 ? mma_dkv_kernel<64> : mma_dkv_kernel<128>;
  launch_mma(kernel, p, p.keys, p.kv_heads, backward_tiles * tile_rows * p.K * 2, stream.handle(),
             "attention_backward dkv");
}

}  // namespace trireme::kernels::cuda
