// SPDX-License-Identifier: Apache-2.0
// o = softmax(scale q k^T) v with online softmax on tensor cores: a block takes 64 queries of one
// head, visits the tiles of keys that any of them sees, and keeps for each query the highest score
// m, the sum l of exp(score - m) and the weighted sum of values. lse = m + log l. Values are loaded
// while scores are computed, and the next keys while values are multiplied.
#include <math_constants.h>

#include "kernels/cuda/attention/attention_mma.cuh"

namespace trireme::kernels::cuda {
namespace {

template <int K>
__global__ void __launch_bounds__(mma_threads, K == 64 ? 4 : 3)
    mma_forward_kernel(AttentionProblem p) {
  extern __shared__ float4 attention_memory[];
  const uint32_t q = shared_address(attention_memory);
  const uint32_t k = q + MmaTile<K>::bytes, v = k + MmaTile<K>::bytes;

  const int lane = static_cast<int>(threadIdx.x) % warp_size;
  const int row = static_cast<int>(threadIdx.x) / warp_size * 16;  // first of the warp
  // Late tiles see the most keys: they start first.
  const int block = static_cast<int>(gridDim.x - 1 - blockIdx.x);
  const int head = block % p.heads, tile = block / p.heads, first = tile * tile_rows;
  const int kv_head = head / (p.heads / p.kv_heads);
  const TileKeys seen = p.tiles[tile];
  const int query[2] = {first + row + lane / 4, first + row + lane / 4 + 8};
  const RowKeys range[2] = {range_of(p, query[0]), range_of(p, query[1])};
  const float scale = p.scale * log2_e;

  float highest[2] = {-CUDART_INF_F, -CUDART_INF_F}, total[2] = {};
  float acc[MmaTile<K>::columns][4] = {};
  if (seen.begin < seen.end) {
    load_rows<K>(q, p.q, head, first, p.tokens);
    load_rows<K>(k, p.k, kv_head, seen.begin, seen.end);
    commit_copies();
  }
  for (int key0 = seen.begin; key0 < seen.end; key0 += mma_side) {
    wait_for_copies();
    __syncthreads();  // the keys are there, and the previous values have been read
    load_rows<K>(v, p.v, kv_head, key0, seen.end);
    commit_copies();
    float s[pair_columns][4] = {};
    multiply_rows<K>(s, q, row, k);
    if (key0 < seen.all_begin || key0 + mma_side > seen.all_end) {
#pragma unroll
      for (int j = 0; j < pair_columns; ++j) {
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          const int key = key0 + j * 8 + lane % 4 * 2 + e % 2;
          const RowKeys& own = range[e / 2];
          if (key < own.begin || key >= own.end) s[j][e] = -CUDART_INF_F;
        }
      }
    }
    wait_for_copies();
    __syncthreads();  // the values are there, and the keys have been read
    load_rows<K>(k, p.k, kv_head, key0 + mma_side, seen.end);
    commit_copies();
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float top = highest[half];
#pragma unroll
      for (int j = 0; j < pair_columns; ++j) {
        top = fmaxf(top, fmaxf(s[j][half * 2], s[j][half * 2 + 1]));
      }
      top = quad_max(top);
      const float shift = top == -CUDART_INF_F ? 0.0F : top * scale;  // nothing seen so far
      const float factor = exp2f(highest[half] * scale - shift);
      highest[half] = top;
      float sum = 0;
#pragma unroll
      for (int j = 0; j < pair_columns; ++j) {
#pragma unroll
        for (int e = half * 2; e < half * 2 + 2; ++e) {
          s[j][e] = exp2f(fmaf(s[j][e], scale, -shift));
          sum += s[j][e];
        }
      }
      total[half] = total[half] * factor + sum;  // of the lane's columns
#pragma unroll
      for (int c = 0; c < MmaTile<K>::columns; ++c) {
        acc[c][half * 2] *= factor;
        acc[c][half * 2 + 1] *= factor;
      }
    }
    multiply_pairs<K>(acc, s, v);
  }
  wait_for_copies();

#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const float sum = quad_sum(total[half]);
    if (range[half].begin < 0) continue;
    store_half<K>(p.o, head, query[half], acc, half, sum > 0 ? 1 / sum : 0.0F, false);
    if (lane % 4 == 0) {
      p.lse[lse_index(range[half], p.heads, head, query[half])] =
          sum > 0 ? highest[half] * p.scale + logf(sum) : -CUDART_INF_F;
    }
  }
}

}  // namespace

bool is_tensor_core_problem(const AttentionProblem& p) {
  const auto fits = [](const HeadRows& rows) { return rows.data == nullptr || rows.is_vector; };
  const auto is_bf16 = [](const HeadRows& rows) { return rows.dtype == base::DType::bf16; };
  return is_bf16(p.q) && is_bf16(p.k) && is_bf16(p.v) && (p.K == 64 || p.K == 128) && fits(p.q) &&
         fits(p.k) && fits(p.v) && fits(p.o) && fits(p.dout) && fits(p.dq) && fits(p.dk) &&
         fits(p.dv);
}

void tensor_core_forward(const device::CudaStream& stream, const AttentionProblem& p) {
  const auto kernel = p.K == 64 ? mma_forward_kernel<64> : mma_forward_kernel<128>;
  launch_mma(kernel, p, p.tokens, p.heads, 3 * tile_rows * p.K * 2, stream.handle(),
             "attention_forward");
}

}  // namespace trireme::kernels::cuda
