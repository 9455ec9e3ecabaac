// SPDX-License-Identifier: Apache-2.0
// The opposite rotation gives du from dy. With weights, xhat = x r and g = du weight:
//   dx = r (g - xhat mean over the head of g xhat);  dweight += sum over tokens and heads of du
//   xhat.
// Bound by memory: dy, x (with weights) and dx once each.
//
// With weights a block takes the norm_rows_per_partial tokens of one row of `partials`: dq_weight,
// then dk_weight. The q heads of all its tokens come first, then the k heads, so that a thread
// keeps the weight and its sums of one kind of head at a time. Every thread reads its elements
// before it writes them, so dx may be dy.
#include "kernels/cuda/rope/rope_rotate.cuh"
#include "kernels/cuda/norm/norm_partials.cuh"
#include "kernels/cuda/table_ops.h"

namespace trireme::kernels::cuda {
namespace {

constexpr int tokens_per_block = static_cast<int>(spec::norm_rows_per_partial);
constexpr int threads = rope_warps * warp_size;
// Sums over tokens and heads, of each warp.
using WarpSums = float[rope_warps][rope_max_head_dim];

struct Parameters {
  InRows dy, x, q_weight, k_weight;
  OutRows dx;
  const float* rstd;
  int64_t rstd_stride;
  RopeTable table;
  float* partials;
  int64_t partials_stride;
  int64_t tokens, heads, q_heads;
  float inverse_K;

  __device__ int64_t first_token() const {
    return static_cast<int64_t>(blockIdx.x) * tokens_per_block;
  }
  __device__ int tokens_here() const {
    const int64_t left = tokens - first_token();
    return left < tokens_per_block ? static_cast<int>(left) : tokens_per_block;
  }
};

// partials[blockIdx.x, part K + c] = sum over the warps, in their order.
__device__ void store_partial(const Parameters& a, int part, const WarpSums& sums) {
  __syncthreads();
  const int64_t c = threadIdx.x, K = a.table.K;
  if (c < K) {
    float sum = 0;
#pragma unroll
    for (int warp = 0; warp < rope_warps; ++warp) sum += sums[warp][c];
    a.partials[blockIdx.x * a.partials_stride + part * K + c] = sum;
  }
  __syncthreads();
}

// A warp takes every eighth token of the block, and 32 / lanes heads of it at a time.
template <typename T>
__global__ void __launch_bounds__(threads) rope_backward_fast(Parameters a) {
  constexpr int W = Vec<T>::width;
  __shared__ WarpSums sums;
  const int warp = threadIdx.x / warp_size;
  const int count = a.tokens_here();
  const RopeLane<W> lane(a.table.K);
  for (int part = 0; part < 2; ++part) {
    const int64_t begin = part == 0 ? 0 : a.q_heads, end = part == 0 ? a.q_heads : a.heads;
    const T* weight = part == 0 ? a.q_weight.row<T>(0) : a.k_weight.row<T>(0);
    const uint4 low_weight = load_bits(weight + lane.low);
    const uint4 high_weight = load_bits(weight + lane.high);
    float low_sum[W] = {}, high_sum[W] = {};
    for (int i = warp; i < count; i += rope_warps) {
      const int64_t t = a.first_token() + i;
      float cosine[W], sine[W];
      lane.angles(a.table, t, cosine, sine);
      for (int64_t h0 = begin; h0 < end; h0 += lane.heads) {
        const int64_t h = h0 + lane.head, first = h * a.table.K;
        const bool is_here = h < end;  // the other lanes add zeros to sums
        float low[W] = {}, high[W] = {}, low_xhat[W] = {}, high_xhat[W] = {};
        float r = 0;
        if (is_here) {
          load_values(a.dy.row<T>(t) + first + lane.low, low);
          load_values(a.dy.row<T>(t) + first + lane.high, high);
          load_values(a.x.row<T>(t) + first + lane.low, low_xhat);
          load_values(a.x.row<T>(t) + first + lane.high, high_xhat);
          r = a.rstd[t * a.rstd_stride + h];
        }
        float w[W];
        float sum_g_xhat = 0;
        unpack<T>(low_weight, w);
#pragma unroll
        for (int j = 0; j < W; ++j) {
          const float u = low[j], v = high[j];
          low[j] = u * cosine[j] + v * sine[j];
          high[j] = v * cosine[j] - u * sine[j];
          low_xhat[j] *= r;
          high_xhat[j] *= r;
          low_sum[j] += low[j] * low_xhat[j];
          high_sum[j] += high[j] * high_xhat[j];
          low[j] *= w[j];
          sum_g_xhat += low[j] * low_xhat[j];
        }
        unpack<T>(high_weight, w);
#pragma unroll
        for (int j = 0; j < W; ++j) {
          high[j] *= w[j];
          sum_g_xhat += high[j] * high_xhat[j];
        }
        const float mean = lane.head_sum(sum_g_xhat) * a.inverse_K;
        if (!is_here) continue;
#pragma unroll
        for (int j = 0; j < W; ++j) {
          low[j] = r * (low[j] - low_xhat[j] * mean);
          high[j] = r * (high[j] - high_xhat[j] * mean);
        }
        store_values(a.dx.row<T>(t) + first + lane.low, low);
        store_values(a.dx.row<T>(t) + first + lane.high, high);
      }
    }
    // Over the heads of the warp; then its first head has the sums.
#pragma unroll
    for (int j = 0; j < W; ++j) {
      for (int offset = lane.lanes; offset < warp_size; offset *= 2) {
        low_sum[j] += __shfl_xor_sync(0xffffffffU, low_sum[j], offset);
        high_sum[j] += __shfl_xor_sync(0xffffffffU, high_sum[j], offset);
      }
      if (lane.head == 0) {
        sums[warp][lane.low + j] = low_sum[j];
        sums[warp][lane.high + j] = high_sum[j];
      }
    }
    store_partial(a, part, sums);
  }
}

// A warp takes every eighth (token, head) of the block; a lane the pairs lane, lane + 32, ..
__global__ void __launch_bounds__(threads) rope_backward_general(Parameters a) {
  constexpr int max_pairs = static_cast<int>(rope_max_head_dim) / 2 / warp_size;
  __shared__ WarpSums sums;
  const int warp = threadIdx.x / warp_size, lane = threadIdx.x % warp_size;
  const int64_t half = a.table.K / 2;
  for (int part = 0; part < 2; ++part) {
    const InRows weight = part == 0 ? a.q_weight : a.k_weight;
    const int64_t begin = part == 0 ? 0 : a.q_heads, end = part == 0 ? a.q_heads : a.heads;
    const int64_t items = a.tokens_here() * (end - begin);
    float low_sum[max_pairs] = {}, high_sum[max_pairs] = {};
    for (int64_t item = warp; item < items; item += rope_warps) {
      const int64_t t = a.first_token() + item / (end - begin);
      const int64_t h = begin + item % (end - begin), first = h * a.table.K;
      const float r = a.rstd[t * a.rstd_stride + h];
      const float* angles = a.table.row(t);
      float low[max_pairs], high[max_pairs];  // g
      float sum_g_xhat = 0;
#pragma unroll
      for (int k = 0; k < max_pairs; ++k) {
        const int64_t i = lane + k * warp_size;
        if (i >= half) continue;
        const float u = a.dy.get(t, first + i), v = a.dy.get(t, first + half + i);
        const float low_xhat = a.x.get(t, first + i) * r;
        const float high_xhat = a.x.get(t, first + half + i) * r;
        const float cosine = angles[i], sine = angles[half + i];
        low[k] = u * cosine + v * sine;
        high[k] = v * cosine - u * sine;
        low_sum[k] += low[k] * low_xhat;
        high_sum[k] += high[k] * high_xhat;
        low[k] *= weight.get(0, i);
        high[k] *= weight.get(0, half + i);
        sum_g_xhat += low[k] * low_xhat + high[k] * high_xhat;
      }
      const float mean = warp_sum(sum_g_xhat) * a.inverse_K;
#pragma unroll
      for (int k = 0; k < max_pairs; ++k) {
        const int64_t i = lane + k * warp_size;
        if (i >= half) continue;
        const float low_xhat = a.x.get(t, first + i) * r;
        const float high_xhat = a.x.get(t, first + half + i) * r;
        a.dx.set(t, first + i, r * (low[k] - low_xhat * mean));
        a.dx.set(t, first + half + i, r * (high[k] - high_xhat * mean));
      }
    }
#pragma unroll
    for (int k = 0; k < max_pairs; ++k) {
      const int64_t i = lane + k * warp_size;
      if (i >= half) continue;
      sums[warp][i] = low_sum[k];
      sums[warp][half + i] = high_sum[k];
    }
    store_partial(a, part, sums);
  }
}

void rotate_back(cudaStream_t stream, const RopeBackwardArgs& args) {
  const base::DType dtype = args.dy.dtype;
  const RopeRotation a = {.x = in_rows(args.dy),
                          .q_weight = {},
                          .k_weight = {},
                          .y = out_rows(args.dx),
                          .table = rope_table(args.positions, args.table),
                          .tokens = args.dy.shape[0],
                          .heads = args.dy.shape[1],
                          .q_heads = args.q_heads,
                          .eps = 0,
                          .sin_sign = -1};
  rope_rotate(stream, a, dtype, is_fast_heads(args.dy, dtype) && is_fast_heads(args.dx, dtype));
}

}  // namespace

void rope_backward(Stream& stream, const RopeBackwardArgs& args) {
  const int64_t T = args.dy.shape[0], K = args.dy.shape[2];
  if (T == 0 || K == 0) return;
  const cudaStream_t handle = device::cuda_stream(stream).handle();
  if (!args.q_weight) return rotate_back(handle, args);
  TRIREME_CHECK(K <= rope_max_head_dim, "rope_backward: head size {} is not supported", K);
  static_assert(rope_max_head_dim <= threads);
  const base::DType dtype = args.dy.dtype;
  const Parameters a = {.dy = in_rows(args.dy),
                        .x = in_rows(args.x),
                        .q_weight = in_vector(args.q_weight),
                        .k_weight = in_vector(args.k_weight),
                        .dx = out_rows(args.dx),
                        .rstd = data<float>(args.rstd),
                        .rstd_stride = args.rstd.row_stride,
                        .table = rope_table(args.positions, args.table),
                        .partials = data<float>(args.partials),
                        .partials_stride = args.partials.row_stride,
                        .tokens = T,
                        .heads = args.dy.shape[1],
                        .q_heads = args.q_heads,
                        .inverse_K = 1.0F / static_cast<float>(K)};
  const unsigned grid = grid_of(norm_partials(T));
  if (is_fast_heads(args.dy, dtype) && is_fast_heads(args.x, dtype) &&
      is_fast_heads(args.dx, dtype) && is_fast_vector(args.q_weight, dtype) &&
      is_fast_vector(args.k_weight, dtype)) {
    with_real_type(dtype, [&](auto* type) {
      using E = std::remove_pointer_t<decltype(type)>;
      rope_backward_fast<E><<<grid, threads, 0, handle>>>(a);
    });
  } else {
    rope_backward_general<<<grid, threads, 0, handle>>>(a);
  }
  check_launch("rope_backward");
  add_partials(handle, args.partials, {args.dq_weight, args.dk_weight, Tensor{}});
}

}  // namespace trireme::kernels::cuda
