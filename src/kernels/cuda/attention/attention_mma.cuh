// SPDX-License-Identifier: Apache-2.0
// Shared by the attention kernels on tensor cores (mma.sync, bf16 with fp32 sums). A block of four
// warps works on tiles of 64 rows (tokens) by K columns, held in shared memory as bf16; the 16-byte
// units of a row are permuted by its number, so that eight rows read at one column hit different
// banks. A warp owns 16 rows of a product. Of a product [16, 8] a lane has two elements in each of
// the rows lane / 4 and lane / 4 + 8, at columns 2 (lane % 4) and the next.
#pragma once

#include "kernels/cuda/attention/attention_problem.h"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/shared_memory.cuh"

namespace trireme::kernels::cuda {

constexpr int mma_threads = 128;
constexpr int mma_warps = mma_threads / warp_size;
constexpr int mma_side = tile_rows;         // rows and columns of a tile of pairs
constexpr int pair_columns = mma_side / 8;  // products [16, 8] beside one another
constexpr float log2_e = 1.4426950408889634F;

template <int K>
struct MmaTile {
  static constexpr int bytes = tile_rows * K * 2;
  static constexpr int units = K / 8;    // 16-byte units of a row
  static constexpr int columns = K / 8;  // products [16, 8] beside one another

  __device__ static uint32_t at(uint32_t tile, int row, int unit) {
    return tile + static_cast<uint32_t>(row * K * 2 + ((unit ^ (row & 7)) << 4));
  }
};

struct Quad {
  uint32_t at[4];
};

__device__ inline Quad load_matrices(uint32_t address) {
  Quad q;
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(q.at[0]), "=r"(q.at[1]), "=r"(q.at[2]), "=r"(q.at[3])
               : "r"(address)
               : "memory");
  return q;
}
__device__ inline Quad load_transposed(uint32_t address) {
  Quad q;
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(q.at[0]), "=r"(q.at[1]), "=r"(q.at[2]), "=r"(q.at[3])
               : "r"(address)
               : "memory");
  return q;
}

// d [16, 8] += a [16, 16] b [16, 8].
__device__ inline void multiply(float (&d)[4], const Quad& a, uint32_t b0, uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a.at[0]), "r"(a.at[1]), "r"(a.at[2]), "r"(a.at[3]), "r"(b0), "r"(b1));
}

__device__ inline uint32_t pack_pair(float low, float high) {
  uint32_t bits;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(bits) : "f"(high), "f"(low));
  return bits;
}

// d [16, 64] += rows [row, row + 16) of a times the rows of b, transposed.
template <int K>
__device__ void multiply_rows(float (&d)[pair_columns][4], uint32_t a, int row, uint32_t b) {
  const int lane = static_cast<int>(threadIdx.x) % warp_size;
#pragma unroll
  for (int unit = 0; unit < MmaTile<K>::units; unit += 2) {
    const Quad x = load_matrices(MmaTile<K>::at(a, row + (lane & 15), unit + (lane >> 4)));
#pragma unroll
    for (int j = 0; j < pair_columns; j += 2) {
      const Quad y = load_matrices(
          MmaTile<K>::at(b, j * 8 + (lane & 7) + (lane >> 4) * 8, unit + ((lane >> 3) & 1)));
      multiply(d[j], x, y.at[0], y.at[1]);
      multiply(d[j + 1], x, y.at[2], y.at[3]);
    }
  }
}

// d [16, K] += pairs [16, 64], rounded to bf16, times b [64, K].
template <int K>
__device__ void multiply_pairs(float (&d)[MmaTile<K>::columns][4],
                               const float (&pairs)[pair_columns][4], uint32_t b) {
  const int lane = static_cast<int>(threadIdx.x) % warp_size;
#pragma unroll
  for (int j = 0; j < pair_columns; j += 2) {
    const Quad x = {pack_pair(pairs[j][0], pairs[j][1]), pack_pair(pairs[j][2], pairs[j][3]),
                    pack_pair(pairs[j + 1][0], pairs[j + 1][1]),
                    pack_pair(pairs[j + 1][2], pairs[j + 1][3])};
#pragma unroll
    for (int c = 0; c < MmaTile<K>::columns; c += 2) {
      const Quad y = load_transposed(MmaTile<K>::at(b, j * 8 + (lane & 15), c + (lane >> 4)));
      multiply(d[c], x, y.at[0], y.at[1]);
      multiply(d[c + 1], x, y.at[2], y.at[3]);
    }
  }
}

// Starts to load head `head` of rows [first, first + 64) as bf16; zero for rows >= end. The copies
// of bf16 belong to the group that the caller commits.
template <int K>
__device__ void load_rows(uint32_t tile, const HeadRows& from, int head, int first, int end) {
#pragma unroll 4
  for (int i = static_cast<int>(threadIdx.x); i < tile_rows * MmaTile<K>::units; i += mma_threads) {
    const int row = i / MmaTile<K>::units, unit = i % MmaTile<K>::units;
    const bool is_there = first + row < end;
    const int64_t element = static_cast<int64_t>(is_there ? first + row : 0) * from.row_stride +
                            static_cast<int64_t>(head) * K + unit * 8;
    const uint32_t to = MmaTile<K>::at(tile, row, unit);
    if (from.dtype == base::DType::bf16) {
      copy_to_shared(to, __cvta_generic_to_global(static_cast<const bf16*>(from.data) + element),
                     is_there);
    } else {
      const float* x = static_cast<const float*>(from.data) + element;
      float4 a = {}, b = {};
      if (is_there) {
        a = *reinterpret_cast<const float4*>(x);
        b = *reinterpret_cast<const float4*>(x + 4);
      }
      store_shared(
          to, {pack_pair(a.x, a.y), pack_pair(a.z, a.w), pack_pair(b.x, b.y), pack_pair(b.z, b.w)});
    }
  }
}

// The lane's part of row t, half 0 or 1 of a product [16, K], times `factor`.
template <int K>
__device__ void store_half(const HeadRows& to, int head, int64_t t,
                           const float (&d)[MmaTile<K>::columns][4], int half, float factor,
                           bool accumulates) {
  const int64_t first = t * to.row_stride + static_cast<int64_t>(head) * K + threadIdx.x % 4 * 2;
#pragma unroll
  for (int c = 0; c < MmaTile<K>::columns; ++c) {
    const float x = d[c][half * 2] * factor, y = d[c][half * 2 + 1] * factor;
    if (to.dtype == base::DType::bf16) {
      *reinterpret_cast<uint32_t*>(static_cast<bf16*>(to.data) + first + c * 8) = pack_pair(x, y);
    } else {
      auto* at = reinterpret_cast<float2*>(static_cast<float*>(to.data) + first + c * 8);
      const float2 old = accumulates ? *at : float2{0, 0};
      *at = {old.x + x, old.y + y};
    }
  }
}

// Sum and maximum over the four lanes of a row, in a fixed order; all lanes receive the result.
__device__ inline float quad_sum(float value) {
  value += __shfl_xor_sync(0xffffffffU, value, 1);
  return value + __shfl_xor_sync(0xffffffffU, value, 2);
}
__device__ inline float quad_max(float value) {
  value = fmaxf(value, __shfl_xor_sync(0xffffffffU, value, 1));
  return fmaxf(value, __shfl_xor_sync(0xffffffffU, value, 2));
}

// The range of row t; rows that do not exist are not computed here.
__device__ inline RowKeys range_of(const AttentionProblem& p, int t) {
  return t < p.tokens ? p.rows[t] : RowKeys{-1, -1, 0, 0};
}

// ---- host side

// One block for each of `heads` heads of each tile of `rows`.
inline void launch_mma(void (*kernel)(AttentionProblem), const AttentionProblem& problem,
                       int64_t rows, int64_t heads, int bytes, cudaStream_t stream,
                       const char* name) {
  const int64_t blocks = ceil_div(rows, tile_rows) * heads;
  TRIREME_CHECK(blocks > 0 && blocks < (int64_t{1} << 31), "{}: {} blocks", name, blocks);
  device::cuda_check(
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes), name);
  kernel<<<static_cast<unsigned>(blocks), mma_threads, static_cast<size_t>(bytes), stream>>>(
      problem);
  check_launch(name);
}

}  // namespace trireme::kernels::cuda
