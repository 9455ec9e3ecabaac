// SPDX-License-Identifier: Apache-2.0
// The fast kernel of norm_backward.cu. It runs as many blocks as the multiprocessors hold (so the
// order of the sums over rows depends on their number), each of which has one row of `partials`. A
// thread has the same columns of every row, so the weight and the sums over rows stay in its
// registers. A block processes two vectors of each thread together, of two rows if a thread's part
// of a row is one vector: that halves the barriers. Meanwhile the rows of the next two turns are
// copied to shared memory, 92 KiB of a multiprocessor; each thread reads only its copies.
//
// A multiprocessor computes rows about as fast as memory delivers them, so instructions count:
// addresses are pointers that advance with the turns.
#pragma once

#include "kernels/cuda/norm/norm_backward.cuh"
#include "kernels/cuda/quantize/magnitude.cuh"
#include "kernels/cuda/shared_memory.cuh"

namespace trireme::kernels::cuda {

constexpr int max_vectors = 2;  // of a row, for one thread
constexpr int stages = 3;       // turns held in shared memory
constexpr int operands = 3;     // dy, x, dresidual
constexpr int vectors_per_turn = operands * max_vectors;

// This thread's part of R rows, N vectors each, in memory.
template <typename T>
class Part {
 public:
  // Its first rows are `first` and on.
  template <typename Void>
  __device__ Part(const BasicRows<Void>& rows, int first, int step)
      : row_(rows.stride * static_cast<int64_t>(sizeof(T))),
        turn_(row_ * step),
        at_(reinterpret_cast<uint64_t>(rows.data) + row_ * first + threadIdx.x * 16) {}

  // Vector k of row i.
  __device__ uint64_t at(int i, int k) const { return at_ + i * row_ + k * (blockDim.x * 16); }
  __device__ void advance() { at_ += turn_; }

 private:
  int64_t row_, turn_;  // bytes from row to row, from turn to turn
  uint64_t at_;
};

// REQUIRES: all operands are of type T and vectorisable, T fits an int, D <= N vectors for each
// thread, dynamic shared memory of stages * vectors_per_turn vectors a thread; `sums_dresidual` as
// in the parameters; it requires a dresidual; `raises`: there is an amax.
template <typename T, NormKind kind, int R, int N, bool sums_dresidual, bool raises>
__global__ void __launch_bounds__(norm_max_threads) norm_backward_fast(NormBackward a) {
  static_assert(R * N == max_vectors);
  constexpr int W = Vec<T>::width;
  constexpr bool is_layer = kind == NormKind::layer;
  constexpr int row_sums = is_layer ? 2 : 1;  // g xhat, and g
  extern __shared__ uint4 raw[];
  __shared__ SharedSums<R * row_sums> shared;
  const int rows = static_cast<int>(a.T), step = static_cast<int>(gridDim.x) * R;
  const int first = static_cast<int>(blockIdx.x) * R;
  const bool has_dresidual = a.dresidual.data != nullptr;
  bool is_mine[N];  // the k-th vector of this thread is one of a row
#pragma unroll
  for (int k = 0; k < N; ++k) {
    is_mine[k] = static_cast<int64_t>(threadIdx.x + k * blockDim.x) * W < a.D;
  }

  // Places of this thread's vectors: [stages][operands][R * N].
  const uint32_t vector_bytes = blockDim.x * 16;
  const uint32_t stage_bytes = vectors_per_turn * vector_bytes;
  const uint32_t places = shared_address(raw) + threadIdx.x * 16;
  const auto place = [&](uint32_t stage, int operand, int i, int k) {
    return stage + (operand * max_vectors + i * N + k) * vector_bytes;
  };
  Part<T> dy_part(a.dy, first, step), x_part(a.x, first, step);
  Part<T> dresidual_part(a.dresidual, first, step);
  // Starts the copies of the rows from t on that exist.
  const auto fetch = [&](uint32_t stage, int t) {
#pragma unroll
    for (int i = 0; i < R; ++i) {
#pragma unroll
      for (int k = 0; k < N; ++k) {
        if (t + i >= rows || !is_mine[k]) continue;
        copy_to_shared(place(stage, 0, i, k), dy_part.at(i, k));
        copy_to_shared(place(stage, 1, i, k), x_part.at(i, k));
        if (has_dresidual) copy_to_shared(place(stage, 2, i, k), dresidual_part.at(i, k));
      }
    }
    commit_copies();
    dy_part.advance();
    x_part.advance();
    dresidual_part.advance();
  };
#pragma unroll
  for (int stage = 0; stage < stages; ++stage) {
    fetch(places + stage * stage_bytes, first + stage * step);
  }
  Largest<T> largest;
  float weight[N][W] = {}, dweight[N][W] = {}, dbias[N][W] = {}, dresidual[N][W] = {};
  const auto column = [](int k) { return static_cast<int>(threadIdx.x + k * blockDim.x) * W; };
#pragma unroll
  for (int k = 0; k < N; ++k) {
    if (is_mine[k]) load_values(a.weight.row<T>(0) + column(k), weight[k]);
  }
  const float* stats = a.stats + first * a.stats_stride;
  RowStats next_stats[R];
#pragma unroll
  for (int i = 0; i < R; ++i) {
    if (first + i < rows) next_stats[i] = stats_at<kind>(stats + i * a.stats_stride);
  }

  Part<T> dx_part(a.dx, first, step), y_part(a.y, first, step);
  uint32_t stage = places;
  int turn = 0;
  for (int t = first; t < rows; t += step) {
    float xhat[R][N][W], g[R][N][W], r[R];
    Sums<R* row_sums> sums = {};
    wait_for_copies<stages - 1>();
    stats += step * a.stats_stride;
#pragma unroll
    for (int i = 0; i < R; ++i) {
      const float mean = next_stats[i].mean;
      r[i] = next_stats[i].r;
      if (t + step + i < rows) next_stats[i] = stats_at<kind>(stats + i * a.stats_stride);
#pragma unroll
      for (int k = 0; k < N; ++k) {
        if (t + i >= rows || !is_mine[k]) continue;
        float dy[W], x[W];
        unpack<T>(load_shared(place(stage, 0, i, k)), dy);
        unpack<T>(load_shared(place(stage, 1, i, k)), x);
#pragma unroll
        for (int j = 0; j < W; ++j) {
          xhat[i][k][j] = norm_xhat<kind>(x[j], mean, r[i]);
          g[i][k][j] = dy[j] * weight[k][j];
          dweight[k][j] += dy[j] * xhat[i][k][j];
          sums.at[i * row_sums] += g[i][k][j] * xhat[i][k][j];
          if constexpr (is_layer) {
            dbias[k][j] += dy[j];
            sums.at[i * row_sums + 1] += g[i][k][j];
          }
        }
      }
    }
    const Sums<R* row_sums> totals = sums_over_block(sums, shared, turn);
#pragma unroll
    for (int i = 0; i < R; ++i) {
      const float g_xhat_mean = totals.at[i * row_sums] * a.inverse_D;
      const float g_mean = is_layer ? totals.at[i * row_sums + row_sums - 1] * a.inverse_D : 0.0F;
#pragma unroll
      for (int k = 0; k < N; ++k) {
        if (t + i >= rows || !is_mine[k]) continue;
        float dx[W] = {};
        if (has_dresidual) unpack<T>(load_shared(place(stage, 2, i, k)), dx);
#pragma unroll
        for (int j = 0; j < W; ++j) {
          if constexpr (sums_dresidual) dresidual[k][j] += dx[j];
          float inner = g[i][k][j] - xhat[i][k][j] * g_xhat_mean;
          if constexpr (is_layer) inner -= g_mean;
          dx[j] += r[i] * inner;
        }
        if constexpr (raises) {
          store_values(reinterpret_cast<T*>(dx_part.at(i, k)), dx, largest);
        } else {
          store_values(reinterpret_cast<T*>(dx_part.at(i, k)), dx);
        }
        if (a.y.data != nullptr) {
          float y[W], bias[W] = {};
          if (a.bias.data != nullptr) load_values(a.bias.row<T>(0) + column(k), bias);
#pragma unroll
          for (int j = 0; j < W; ++j) y[j] = norm_y<kind>(xhat[i][k][j], weight[k][j], bias[j]);
          store_values(reinterpret_cast<T*>(y_part.at(i, k)), y);
        }
      }
    }
    dx_part.advance();
    y_part.advance();
    // The data of this stage has been used for dx.
    fetch(stage, t + stages * step);
    stage = stage == places + (stages - 1) * stage_bytes ? places : stage + stage_bytes;
    turn ^= 1;
  }

  float* partial = a.partials + blockIdx.x * a.partials_stride;
#pragma unroll
  for (int k = 0; k < N; ++k) {
    if (!is_mine[k]) continue;
    const int c = column(k);
    store_floats(partial + c, dweight[k]);
    if (a.has_dbias) store_floats(partial + a.D + c, dbias[k]);
    if constexpr (sums_dresidual) {
      store_floats(partial + dresidual_place<kind> * a.D + c, dresidual[k]);
    }
  }
  if constexpr (raises) {
    __shared__ uint32_t maxima[norm_max_threads / warp_size];
    raise_by_block(a.amax, largest.bits(), maxima);
  }
}

}  // namespace trireme::kernels::cuda
