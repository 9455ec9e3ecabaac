// SPDX-License-Identifier: Apache-2.0
// The kernels of norm_backward.cu for rows that the fast one does not hold, and for any types and
// strides. Two passes: the sums over rows, then dx; in that order, since dx may take the place of
// dy or dresidual. Both read dy and x, the second from the L2 cache if there are few rows.
#pragma once

#include "kernels/cuda/norm/norm_backward.cuh"
#include "kernels/cuda/quantize/magnitude.cuh"
#include "spec/facts/op_shapes.h"

namespace trireme::kernels::cuda {

constexpr int column_threads = 128;  // norm_backward_columns
constexpr int row_threads = 512;     // norm_backward_rows, at most
static_assert(row_threads <= norm_max_threads);

// How a general kernel moves elements: vectors of type T, or single ones of a type known at run
// time.
template <typename T>
struct Vectors {
  static constexpr int width = Vec<T>::width;
  __device__ static void load(const InRows& rows, int64_t t, int64_t c, float (&values)[width]) {
    load_values(rows.row<T>(t) + c, values);
  }
  __device__ static void store(const OutRows& rows, int64_t t, int64_t c,
                               const float (&values)[width]) {
    store_values(rows.row<T>(t) + c, values);
  }
};
struct Singles {
  static constexpr int width = 1;
  __device__ static void load(const InRows& rows, int64_t t, int64_t c, float (&values)[1]) {
    values[0] = rows.get(t, c);
  }
  __device__ static void store(const OutRows& rows, int64_t t, int64_t c,
                               const float (&values)[1]) {
    rows.set(t, c, values[0]);
  }
};

template <int W>
__device__ void store_sums(float* p, const float (&sums)[W]) {
  if constexpr (W == 1) {
    *p = sums[0];
  } else {
    store_floats(p, sums);
  }
}

// A row of `partials` (blockIdx.x) and column_threads vectors of columns (blockIdx.y).
template <typename Elements, NormKind kind>
__global__ void __launch_bounds__(column_threads) norm_backward_columns(NormBackward a) {
  constexpr int W = Elements::width;
  constexpr int64_t rows_per_block = spec::norm_rows_per_partial;
  const int64_t c = (int64_t{blockIdx.y} * column_threads + threadIdx.x) * W;
  if (c >= a.D) return;
  const int64_t first = int64_t{blockIdx.x} * rows_per_block;
  const int64_t end = a.T - first < rows_per_block ? a.T : first + rows_per_block;
  float dweight[W] = {}, dbias[W] = {}, dresidual[W] = {};
#pragma unroll 4
  for (int64_t t = first; t < end; ++t) {
    const auto [mean, r] = stats_at<kind>(a.stats + t * a.stats_stride);
    float dy[W], x[W];
    Elements::load(a.dy, t, c, dy);
    Elements::load(a.x, t, c, x);
#pragma unroll
    for (int j = 0; j < W; ++j) {
      dweight[j] += dy[j] * norm_xhat<kind>(x[j], mean, r);
      if constexpr (kind == NormKind::layer) dbias[j] += dy[j];
    }
    if (!a.has_dresidual_sum) continue;
    float residual[W];
    Elements::load(a.dresidual, t, c, residual);
#pragma unroll
    for (int j = 0; j < W; ++j) dresidual[j] += residual[j];
  }
  float* partial = a.partials + blockIdx.x * a.partials_stride + c;
  store_sums(partial, dweight);
  if (a.has_dbias) store_sums(partial + a.D, dbias);
  if (a.has_dresidual_sum) store_sums(partial + dresidual_place<kind> * a.D, dresidual);
}

// A block computes a row of dx, and of y.
template <typename Elements, NormKind kind>
__global__ void __launch_bounds__(row_threads) norm_backward_rows(NormBackward a) {
  constexpr int W = Elements::width;
  __shared__ SharedSums<2> shared;
  const int64_t t = blockIdx.x;
  const auto [mean, r] = stats_at<kind>(a.stats + t * a.stats_stride);
  Sums<2> sums = {};  // g xhat, and g
  for (int64_t c = int64_t{threadIdx.x} * W; c < a.D; c += blockDim.x * W) {
    float dy[W], x[W], weight[W];
    Elements::load(a.dy, t, c, dy);
    Elements::load(a.x, t, c, x);
    Elements::load(a.weight, 0, c, weight);
#pragma unroll
    for (int j = 0; j < W; ++j) {
      const float g = dy[j] * weight[j];
      sums.at[0] += g * norm_xhat<kind>(x[j], mean, r);
      if constexpr (kind == NormKind::layer) sums.at[1] += g;
    }
  }
  const Sums<2> totals = sums_over_block(sums, shared, 0);
  const float g_xhat_mean = totals.at[0] * a.inverse_D, g_mean = totals.at[1] * a.inverse_D;
  Largest<float> largest;
  for (int64_t c = int64_t{threadIdx.x} * W; c < a.D; c += blockDim.x * W) {
    float dy[W], x[W], weight[W], dx[W] = {};
    Elements::load(a.dy, t, c, dy);
    Elements::load(a.x, t, c, x);
    Elements::load(a.weight, 0, c, weight);
    if (a.dresidual.data != nullptr) Elements::load(a.dresidual, t, c, dx);
#pragma unroll
    for (int j = 0; j < W; ++j) {
      x[j] = norm_xhat<kind>(x[j], mean, r);
      dx[j] += r * (dy[j] * weight[j] - g_mean - x[j] * g_xhat_mean);
    }
    Elements::store(a.dx, t, c, dx);
    if (a.amax != nullptr) {
#pragma unroll
      for (int j = 0; j < W; ++j) largest.add(a.dx.get(t, c + j));
    }
    if (a.y.data == nullptr) continue;
    float bias[W] = {};
    if (a.bias.data != nullptr) Elements::load(a.bias, 0, c, bias);
#pragma unroll
    for (int j = 0; j < W; ++j) x[j] = norm_y<kind>(x[j], weight[j], bias[j]);
    Elements::store(a.y, t, c, x);
  }
  __shared__ uint32_t maxima[row_threads / warp_size];
  if (a.amax != nullptr) raise_by_block(a.amax, largest.bits(), maxima);
}

}  // namespace trireme::kernels::cuda
