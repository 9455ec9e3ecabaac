// SPDX-License-Identifier: Apache-2.0
// The backward of causal attention on Hopper, deterministic. With p = exp(scale q k - lse), dp =
// dout v, delta = sum over K of dout * o:
//   ds = p (dp - delta);  dv = p^T dout;  dk = scale ds^T q;  dq = scale ds k.
//
// A block has 128 keys of one key head and visits tiles of queries, from the diagonal on, of all
// query heads that read them: 5 products a tile, p and ds transposed, so that they are operands in
// registers. One of its 12 warps copies operands ahead; two warpgroups multiply, 64 keys each; two
// warps add the tile's part of dq to its sum in fp32, one half each.
//
// The parts of a dq are added in one order, from the last keys to the first. Block n visits tile m
// in its step m - n, so that block n + 1 has visited it one step before: blocks that run side by
// side do not wait for each other. Blocks draw their keys in that order, so that one never waits
// for another that has not started.
#pragma once

#include "kernels/cuda/gemm_fused/hopper.cuh"
#include "kernels/cuda/gemm_fused/tensor_maps.h"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/shared_memory.cuh"
#include "spec/facts/backend.h"

namespace trireme::kernels::cuda::flash {

constexpr int tile_keys = spec::flash_tile_keys, half_keys = tile_keys / 2;
constexpr int tile_queries(int K) { return static_cast<int>(spec::flash_tile_queries(K)); }
constexpr int part_columns = 64;  // of a swizzled tile: rows of 128 bytes
constexpr int group_threads = 128, threads = 3 * group_threads;
constexpr int stages = 2;
constexpr int half_floats = 64 * 64;  // of dq: what one warpgroup computes of a tile

constexpr Box query_box(int K) { return {tile_queries(K), part_columns}; }
constexpr Box key_box = {tile_keys, part_columns};

struct Problem {
  CUtensorMap q, dout, k, v;  // [sequences, T, columns]
  const float* lse;           // [sequences, H, rows], times log2(e); infinite from T on
  const float* delta;         // [sequences, H, rows]; 0 from T on
  float* dq_sum;              // [sequences, H, tiles of queries, 2, half_floats]
  int* turns;                 // [sequences, H, tiles of queries, 2]: parts that have been added
  int* ticket;                // blocks that have started
  bf16 *dk, *dv;
  int64_t dk_stride, dv_stride;
  int heads, kv_heads, T, key_tiles, query_tiles;
  int rows;                 // T, rounded up to tiles of keys
  float scale, scale_log2;  // the second times log2(e)
};

// Shared memory, from an address that is a multiple of 1024.
template <int K>
struct Shared {
  static constexpr int M = tile_queries(K);
  static constexpr uint32_t key_bytes = tile_keys * K * 2, query_bytes = M * K * 2;
  static constexpr uint32_t ds_bytes = tile_keys * M * 2, half_bytes = half_floats * 4;
  static constexpr uint32_t row_bytes = M * 4;
  static constexpr uint32_t v_begin = key_bytes, q_begin = v_begin + key_bytes;
  static constexpr uint32_t dout_begin = q_begin + stages * query_bytes;
  static constexpr uint32_t ds_begin = dout_begin + stages * query_bytes;
  static constexpr uint32_t dq_begin = ds_begin + 2 * ds_bytes;
  static constexpr uint32_t lse_begin = dq_begin + 4 * half_bytes;
  static constexpr uint32_t delta_begin = lse_begin + stages * row_bytes;
  static constexpr uint32_t barriers_begin = delta_begin + stages * row_bytes;
  static constexpr uint32_t barriers = 1 + 3 * stages + 8;
  static constexpr uint32_t ticket_begin = barriers_begin + 8 * barriers;
  static constexpr uint32_t bytes = ticket_begin + 8;

  uint32_t base;
  __device__ uint32_t k() const { return base; }
  __device__ uint32_t v() const { return base + v_begin; }
  __device__ uint32_t q(int stage) const { return base + q_begin + stage * query_bytes; }
  __device__ uint32_t dout(int stage) const { return base + dout_begin + stage * query_bytes; }
  // Transposed: rows are keys. Parts of 64 queries.
  __device__ uint32_t ds(int buffer) const { return base + ds_begin + buffer * ds_bytes; }
  __device__ uint32_t dq(int half, int buffer) const {
    return base + dq_begin + (2 * half + buffer) * half_bytes;
  }
  __device__ uint32_t lse(int stage) const { return base + lse_begin + stage * row_bytes; }
  __device__ uint32_t delta(int stage) const { return base + delta_begin + stage * row_bytes; }
  __device__ uint32_t barrier(int i) const { return base + barriers_begin + 8 * i; }
  __device__ uint32_t keys_full() const { return barrier(0); }
  __device__ uint32_t q_full(int stage) const { return barrier(1 + stage); }
  __device__ uint32_t dout_full(int stage) const { return barrier(1 + stages + stage); }
  __device__ uint32_t empty(int stage) const { return barrier(1 + 2 * stages + stage); }
  __device__ uint32_t dq_full(int half, int buffer) const {
    return barrier(1 + 3 * stages + 2 * half + buffer);
  }
  __device__ uint32_t dq_empty(int half, int buffer) const { return dq_full(2 + half, buffer); }

  __device__ void init_barriers() const {
    hopper::init_barrier(keys_full(), 1);
    for (int i = 0; i < 2; ++i) {
      hopper::init_barrier(q_full(i), 1);
      hopper::init_barrier(dout_full(i), 1);
      hopper::init_barrier(empty(i), 2);
      for (int half = 0; half < 2; ++half) {
        hopper::init_barrier(dq_full(half, i), group_threads);
        hopper::init_barrier(dq_empty(half, i), 1);
      }
    }
    hopper::publish_barriers();
  }
};

// The keys of a block, and its steps: every tile of queries from the diagonal on, head by head.
template <int K>
struct Work {
  int sequence, kv_head, key_tile;
  __device__ Work(const Problem& p, int ticket)
      : sequence(ticket / p.key_tiles / p.kv_heads),
        kv_head(ticket / p.key_tiles % p.kv_heads),
        key_tile(p.key_tiles - 1 - ticket % p.key_tiles) {}

  // Calls step(number, head, query tile).
  template <typename Step>
  __device__ void each(const Problem& p, const Step& step) const {
    const int group = p.heads / p.kv_heads;
    int number = 0;
    for (int head = kv_head * group; head < (kv_head + 1) * group; ++head) {
      for (int m = key_tile * (tile_keys / tile_queries(K)); m < p.query_tiles; ++m, ++number) {
        step(number, head, m);
      }
    }
  }
};

__device__ inline uint32_t parity(int number) { return (number / stages) & 1; }

// Run by one thread.
template <int K>
__device__ void copy_operands(const Problem& p, Shared<K> shared, const Work<K>& work) {
  constexpr int M = tile_queries(K);
  using S = Shared<K>;
  const auto copy_keys = [&](uint32_t to, const CUtensorMap& map) {
    for (int c = 0; c < K; c += part_columns) {
      hopper::copy_tile(to + c * (tile_keys * 2), &map, work.kv_head * K + c,
                        work.key_tile * tile_keys, work.sequence, shared.keys_full());
    }
  };
  hopper::arrive_expecting(shared.keys_full(), 2 * S::key_bytes);
  copy_keys(shared.k(), p.k);
  copy_keys(shared.v(), p.v);
  work.each(p, [&](int number, int head, int m) {
    const int stage = number % stages;
    const int64_t row = (static_cast<int64_t>(work.sequence) * p.heads + head) * p.rows + m * M;
    const auto copy = [&](uint32_t to, const CUtensorMap& map, uint32_t row_to, const float* rows,
                          uint32_t full) {
      hopper::arrive_expecting(full, S::query_bytes + S::row_bytes);
      for (int c = 0; c < K; c += part_columns) {
        hopper::copy_tile(to + c * (M * 2), &map, head * K + c, m * M, work.sequence, full);
      }
      hopper::copy_bytes(row_to, rows + row, S::row_bytes, full);
    };
    hopper::wait(shared.empty(stage), parity(number) ^ 1);
    copy(shared.q(stage), p.q, shared.lse(stage), p.lse, shared.q_full(stage));
    copy(shared.dout(stage), p.dout, shared.delta(stage), p.delta, shared.dout_full(stage));
  });
}

__device__ inline int load_acquired(const int* at) {
  int value;
  asm volatile("ld.acquire.gpu.global.s32 %0, [%1];" : "=r"(value) : "l"(at) : "memory");
  return value;
}
__device__ inline void store_released(int* at, int value) {
  asm volatile("st.release.gpu.global.s32 [%0], %1;" ::"l"(at), "r"(value) : "memory");
}

// Adds one half of every tile of dq to its sum, in turn. Run by one thread.
template <int K>
__device__ void add_dq(const Problem& p, Shared<K> shared, const Work<K>& work, int half) {
  using S = Shared<K>;
  work.each(p, [&](int number, int head, int m) {
    const int buffer = number % 2;
    const int64_t at =
        ((static_cast<int64_t>(work.sequence) * p.heads + head) * p.query_tiles + m) * 2 + half;
    const int turn = m * tile_queries(K) / tile_keys - work.key_tile;
    hopper::wait(shared.dq_full(half, buffer), parity(number));
    float* to = p.dq_sum + at * half_floats;
    if (turn == 0) {
      hopper::store_bytes(to, shared.dq(half, buffer), S::half_bytes);
    } else {
      while (load_acquired(p.turns + at) < turn) {
      }
      hopper::order_copies();
      hopper::add_floats(to, shared.dq(half, buffer), S::half_bytes);
    }
    hopper::tiles_commit();
    hopper::tiles_wait_read<0>();
    hopper::arrive(shared.dq_empty(half, buffer));
    hopper::tiles_wait_written();
    if (work.key_tile > 0) {
      hopper::order_copies();
      store_released(p.turns + at, turn + 1);
    }
  });
}

__device__ inline float2 load_pair(uint32_t address) {
  float2 pair;
  asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];" : "=f"(pair.x), "=f"(pair.y) : "r"(address));
  return pair;
}
__device__ inline float exp2_fast(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
__device__ inline uint32_t packed(float low, float high) {
  uint32_t word;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(high), "f"(low));
  return word;
}
// The values of a warpgroup as the left operand of the next product, 16 columns a step.
template <int M>
__device__ inline void pack(uint32_t (&words)[M / 16][4], const float (&values)[M / 2]) {
#pragma unroll
  for (int i = 0; i < M / 16; ++i) {
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      words[i][j] = packed(values[8 * i + 2 * j], values[8 * i + 2 * j + 1]);
    }
  }
}

// Keeps operands in their registers until here.
template <int count>
__device__ inline void keep(const uint32_t (&words)[count][4]) {
#pragma unroll
  for (int i = 0; i < count; ++i) {
    asm volatile("" ::"r"(words[i][0]), "r"(words[i][1]), "r"(words[i][2]), "r"(words[i][3])
                 : "memory");
  }
}

// Writes the thread's rows of dk or dv.
template <int K>
__device__ void write_keys(bf16* to, int64_t stride, const Problem& p, const Work<K>& work,
                           int first, const float (&values)[K / 2], float scale) {
  const int lane = static_cast<int>(threadIdx.x) % warp_size;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int key = first + lane / 4 + 8 * half;
    if (key >= p.T) continue;
    bf16* row = to + (static_cast<int64_t>(work.sequence) * p.T + key) * stride + work.kv_head * K +
                2 * (lane % 4);
#pragma unroll
    for (int j = 0; j < K / 8; ++j) {
      *reinterpret_cast<uint32_t*>(row + 8 * j) =
          packed(values[4 * j + 2 * half] * scale, values[4 * j + 2 * half + 1] * scale);
    }
  }
}

// Run by one warpgroup, for keys from 64 half on.
template <int K>
__device__ void multiply_tiles(const Problem& p, Shared<K> shared, const Work<K>& work, int half) {
  constexpr int M = tile_queries(K);
  // With dq before dk, dq is written beside the product of dk; heads of 64 lack the registers.
  constexpr bool dq_first = K == 128;
  constexpr uint32_t key_part = tile_keys * 128, query_part = M * 128;  // 64 columns
  const int thread = static_cast<int>(threadIdx.x) % group_threads;
  const int warp = thread / warp_size, lane = thread % warp_size;
  const int key = half * half_keys + 16 * warp + lane / 4;  // in the tile; and 8 further
  // Operands contiguous along k (the head's columns), and along the other dimension.
  const auto by_rows = [](uint32_t at, int step, uint32_t part) {
    return hopper::matrix_descriptor(at + step / 4 * part + step % 4 * 32, 16);
  };
  const auto by_columns = [](uint32_t at, int step, uint32_t part) {
    return hopper::matrix_descriptor(at + step * (16 * 128), part);
  };
  const uint32_t k = shared.k() + half * (half_keys * 128);
  const uint32_t v = shared.v() + half * (half_keys * 128);
  const uint32_t k_columns = shared.k() + (K == 64 ? 0 : half * key_part);

  float dk[K / 2] = {}, dv[K / 2] = {};
  hopper::wait(shared.keys_full(), 0);
  work.each(p, [&](int number, int, int m) {
    const int stage = number % stages, buffer = number % 2;
    const uint32_t q = shared.q(stage), dout = shared.dout(stage);
    float s[M / 2], dp[M / 2];
    hopper::wait(shared.q_full(stage), parity(number));
    hopper::products_begin();
#pragma unroll
    for (int i = 0; i < K / 16; ++i) {
      hopper::multiply<false, false>(s, by_rows(k, i, key_part), by_rows(q, i, query_part), i > 0);
    }
    hopper::products_commit();
    hopper::wait(shared.dout_full(stage), parity(number));
    hopper::products_begin();
#pragma unroll
    for (int i = 0; i < K / 16; ++i) {
      hopper::multiply<false, false>(dp, by_rows(v, i, key_part), by_rows(dout, i, query_part),
                                     i > 0);
    }
    hopper::products_commit();

    hopper::products_wait<1>();
    hopper::hold(s);
#pragma unroll
    for (int j = 0; j < M / 8; ++j) {
      const float2 lse = load_pair(shared.lse(stage) + (8 * j + 2 * (lane % 4)) * 4);
      s[4 * j] = exp2_fast(fmaf(s[4 * j], p.scale_log2, -lse.x));
      s[4 * j + 1] = exp2_fast(fmaf(s[4 * j + 1], p.scale_log2, -lse.y));
      s[4 * j + 2] = exp2_fast(fmaf(s[4 * j + 2], p.scale_log2, -lse.x));
      s[4 * j + 3] = exp2_fast(fmaf(s[4 * j + 3], p.scale_log2, -lse.y));
    }
    const int ahead = m * M - work.key_tile * tile_keys;  // of the first query
    if (ahead < tile_keys) {
#pragma unroll
      for (int j = 0; j < M / 2; ++j) {
        const int query = ahead + 8 * (j / 4) + 2 * (lane % 4) + j % 2;
        if (key + 8 * (j / 2 % 2) > query) s[j] = 0;
      }
    }
    uint32_t words[M / 16][4];
    pack<M>(words, s);
    hopper::products_wait<0>();
    hopper::hold(dp);
    hopper::products_begin();
#pragma unroll
    for (int i = 0; i < M / 16; ++i) {
      hopper::multiply<true>(dv, words[i], by_columns(dout, i, query_part), true);
    }
    hopper::products_commit();

#pragma unroll
    for (int j = 0; j < M / 8; ++j) {
      const float2 delta = load_pair(shared.delta(stage) + (8 * j + 2 * (lane % 4)) * 4);
      dp[4 * j] = s[4 * j] * (dp[4 * j] - delta.x);
      dp[4 * j + 1] = s[4 * j + 1] * (dp[4 * j + 1] - delta.y);
      dp[4 * j + 2] = s[4 * j + 2] * (dp[4 * j + 2] - delta.x);
      dp[4 * j + 3] = s[4 * j + 3] * (dp[4 * j + 3] - delta.y);
    }
    uint32_t ds[M / 16][4];
    pack<M>(ds, dp);
    const auto start_dk = [&] {
      hopper::products_begin();
#pragma unroll
      for (int i = 0; i < M / 16; ++i) {
        hopper::multiply<true>(dk, ds[i], by_columns(q, i, query_part), true);
      }
      hopper::products_commit();
    };
    const auto finish_dk_dv = [&] {
      hopper::hold(dk);
      hopper::hold(dv);
      keep(words);
      keep(ds);
      if (thread == 0) hopper::arrive(shared.empty(stage));
    };
    if (!dq_first) start_dk();

    // ds of all keys in shared memory, for dq.
    const int row = half * half_keys + 16 * warp + lane % 16;
#pragma unroll
    for (int i = 0; i < M / 16; ++i) {
      const int chunk = 2 * i + lane / 16;  // of 8 columns
      hopper::store_matrices(
          shared.ds(buffer) + chunk / 8 * key_part + row * 128 + ((chunk % 8 ^ (row & 7)) << 4),
          ds[i][0], ds[i][1], ds[i][2], ds[i][3]);
    }
    hopper::publish_writes();
    hopper::sync_threads(1, 2 * group_threads);
    float dq[32];
    const uint32_t ds_columns = shared.ds(buffer) + (K == 64 ? half * key_part : 0);
    hopper::products_begin();
#pragma unroll
    for (int i = 0; i < tile_keys / 16; ++i) {
      hopper::multiply<true, true>(dq, by_columns(ds_columns, i, key_part),
                                   by_columns(k_columns, i, key_part), i > 0);
    }
    hopper::products_commit();
    if (dq_first) start_dk();
    hopper::products_wait<1>();
    if (!dq_first) {
      finish_dk_dv();
      hopper::products_wait<0>();
    }
    hopper::hold(dq);
    hopper::wait(shared.dq_empty(half, buffer), parity(number) ^ 1);
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      asm volatile("st.shared.v4.f32 [%0], {%1, %2, %3, %4};" ::"r"(
                       shared.dq(half, buffer) + (j * group_threads + thread) * 16),
                   "f"(dq[4 * j]), "f"(dq[4 * j + 1]), "f"(dq[4 * j + 2]), "f"(dq[4 * j + 3])
                   : "memory");
    }
    hopper::publish_writes();
    hopper::arrive(shared.dq_full(half, buffer));
    if (dq_first) {
      hopper::products_wait<0>();
      finish_dk_dv();
    }
  });
  const int first = work.key_tile * tile_keys + half * half_keys + 16 * warp;
  write_keys<K>(p.dk, p.dk_stride, p, work, first, dk, p.scale);
  write_keys<K>(p.dv, p.dv_stride, p, work, first, dv, 1);
}

template <int K>
__global__ void __launch_bounds__(threads, 1) kernel(const __grid_constant__ Problem p) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL  // FlashAttention launches it nowhere else
  extern __shared__ __align__(1024) uint8_t raw[];
  int* ticket = reinterpret_cast<int*>(raw + Shared<K>::ticket_begin);
  const Shared<K> shared = {shared_address(raw)};
  const int group = static_cast<int>(threadIdx.x) / group_threads;
  const int warp = static_cast<int>(threadIdx.x) / warp_size;
  if (threadIdx.x == 0) {
    shared.init_barriers();
    *ticket = atomicAdd(p.ticket, 1);
  }
  __syncthreads();
  const Work<K> work(p, *ticket);
  if (group > 0) {
    hopper::take_registers<240>();
    multiply_tiles<K>(p, shared, work, group - 1);
  } else {
    hopper::give_registers<24>();
    if (threadIdx.x == 0) {
      copy_operands<K>(p, shared, work);
    } else if (warp > 0 && warp < 3 && threadIdx.x % warp_size == 0) {
      add_dq<K>(p, shared, work, warp - 1);
    }
  }
#endif
}

}  // namespace trireme::kernels::cuda::flash
