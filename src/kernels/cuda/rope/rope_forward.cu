// SPDX-License-Identifier: Apache-2.0
// u = x, or weight * x * r with r = (mean over the head of x^2 + eps)^-1/2;
//   y[i] = u[i] cos_i - u[i + K/2] sin_i;  y[i + K/2] = u[i + K/2] cos_i + u[i] sin_i.
// Bound by memory: x and y once each. With sin_sign -1 and no weights the same kernels are the
// backward. Every thread reads its elements before it writes them, so y may be x.
#include "kernels/cuda/rope/rope.cuh"
#include "kernels/cuda/rope/rope_rotate.cuh"
#include "kernels/cuda/table_ops.h"

namespace trireme::kernels::cuda {
namespace {

// A warp takes a token, q heads first (so that the weight of a lane changes once) and 32 / lanes
// heads at a time.
template <typename T, bool has_weights>
__global__ void __launch_bounds__(rope_warps* warp_size) rope_fast(RopeRotation a) {
  constexpr int W = Vec<T>::width;
  const int64_t t = static_cast<int64_t>(blockIdx.x) * rope_warps + threadIdx.x / warp_size;
  if (t >= a.tokens) return;  // whole warps
  const RopeLane<W> lane(a.table.K);
  float cosine[W], sine[W];
  lane.angles(a.table, t, cosine, sine);
#pragma unroll
  for (int j = 0; j < W; ++j) sine[j] *= a.sin_sign;

  for (int part = 0; part < (has_weights ? 2 : 1); ++part) {
    const int64_t begin = part == 0 ? 0 : a.q_heads;
    const int64_t end = has_weights && part == 0 ? a.q_heads : a.heads;
    float low_weight[W] = {}, high_weight[W] = {};
    if constexpr (has_weights) {
      const T* weight = part == 0 ? a.q_weight.row<T>(0) : a.k_weight.row<T>(0);
      load_values(weight + lane.low, low_weight);
      load_values(weight + lane.high, high_weight);
    }
    for (int64_t h0 = begin; h0 < end; h0 += lane.heads) {
      const int64_t h = h0 + lane.head;
      const bool is_here = h < end;  // the other lanes only take part in sums
      float low[W] = {}, high[W] = {};
      if (is_here) {
        const T* x = a.x.row<T>(t) + h * a.table.K;
        load_values(x + lane.low, low);
        load_values(x + lane.high, high);
      }
      if constexpr (has_weights) {
        float squares = 0;
#pragma unroll
        for (int j = 0; j < W; ++j) squares += low[j] * low[j] + high[j] * high[j];
        const float r = a.reciprocal_rms(lane.head_sum(squares));
        if (is_here && lane.slot == 0) a.rstd[t * a.rstd_stride + h] = r;
#pragma unroll
        for (int j = 0; j < W; ++j) {
          low[j] *= low_weight[j] * r;
          high[j] *= high_weight[j] * r;
        }
      }
      if (!is_here) continue;
#pragma unroll
      for (int j = 0; j < W; ++j) {
        const float u = low[j], v = high[j];
        low[j] = u * cosine[j] - v * sine[j];
        high[j] = v * cosine[j] + u * sine[j];
      }
      T* y = a.y.row<T>(t) + h * a.table.K;
      store_values(y + lane.low, low);
      store_values(y + lane.high, high);
    }
  }
}

// A warp takes a head of a token; a lane the pairs lane, lane + 32, ..
__global__ void __launch_bounds__(rope_warps* warp_size) rope_general(RopeRotation a) {
  const int64_t item = static_cast<int64_t>(blockIdx.x) * rope_warps + threadIdx.x / warp_size;
  if (item >= a.tokens * a.heads) return;  // whole warps
  const int64_t t = item / a.heads, h = item % a.heads;
  const int64_t first = h * a.table.K, half = a.table.K / 2;
  const int64_t lane = threadIdx.x % warp_size;
  const bool has_weights = a.q_weight.data != nullptr;
  const InRows weight = h < a.q_heads ? a.q_weight : a.k_weight;
  float r = 1;
  if (has_weights) {
    float squares = 0;
    for (int64_t i = lane; i < half; i += warp_size) {
      const float low = a.x.get(t, first + i), high = a.x.get(t, first + half + i);
      squares += low * low + high * high;
    }
    r = a.reciprocal_rms(warp_sum(squares));
    if (lane == 0) a.rstd[t * a.rstd_stride + h] = r;
  }
  const float* angles = a.table.row(t);
  for (int64_t i = lane; i < half; i += warp_size) {
    float low = a.x.get(t, first + i), high = a.x.get(t, first + half + i);
    if (has_weights) {
      low *= weight.get(0, i) * r;
      high *= weight.get(0, half + i) * r;
    }
    const float cosine = angles[i], sine = a.sin_sign * angles[half + i];
    a.y.set(t, first + i, low * cosine - high * sine);
    a.y.set(t, first + half + i, high * cosine + low * sine);
  }
}

}  // namespace

void rope_rotate(cudaStream_t stream, const RopeRotation& a, base::DType dtype, bool is_fast) {
  const bool has_weights = a.q_weight.data != nullptr;
  constexpr unsigned threads = rope_warps * warp_size;
  if (!is_fast) {
    const unsigned grid = grid_of(ceil_div(a.tokens * a.heads, rope_warps));
    rope_general<<<grid, threads, 0, stream>>>(a);
  } else {
    const unsigned grid = grid_of(ceil_div(a.tokens, rope_warps));
    with_real_type(dtype, [&](auto* type) {
      using T = std::remove_pointer_t<decltype(type)>;
      if (has_weights) {
        rope_fast<T, true><<<grid, threads, 0, stream>>>(a);
      } else {
        rope_fast<T, false><<<grid, threads, 0, stream>>>(a);
      }
    });
  }
  check_launch("rope_rotate");
}

void rope_forward(Stream& stream, const RopeForwardArgs& args) {
  const int64_t T = args.x.shape[0], heads = args.x.shape[1], K = args.x.shape[2];
  if (T == 0 || K == 0) return;
  const base::DType dtype = args.x.dtype;
  RopeRotation a = {.x = in_rows(args.x),
                    .q_weight = in_vector(args.q_weight),
                    .k_weight = in_vector(args.k_weight),
                    .y = out_rows(args.y),
                    .table = rope_table(args.positions, args.table),
                    .tokens = T,
                    .heads = heads,
                    .q_heads = args.q_heads,
                    .eps = args.eps};
  if (args.rstd) {
    TRIREME_CHECK(args.rstd.dtype == base::DType::f32, "rope_forward: rstd is {}",
                  base::name_of(args.rstd.dtype));
    a.rstd = data<float>(args.rstd);
    a.rstd_stride = args.rstd.row_stride;
  }
  const bool is_fast = is_fast_heads(args.x, dtype) && is_fast_heads(args.y, dtype) &&
                       is_fast_vector(args.q_weight, dtype) && is_fast_vector(args.k_weight, dtype);
  rope_rotate(device::cuda_stream(stream).handle(), a, dtype, is_fast);
}

}  // namespace trireme::kernels::cuda
