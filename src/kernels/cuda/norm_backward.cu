// SPDX-License-Identifier: Apache-2.0
// With xhat = (x - mean) r and g = dy weight:
//   dx = r (g - mean(g) - xhat mean(g xhat)) + dresidual, for rms without mean(g);
//   dweight += sum over t of dy xhat;  dbias += sum over t of dy;  y = xhat weight + bias;
//   dresidual_sum += sum over t of dresidual.
// Bound by memory: dy, x, dresidual and dx (and y) once each.
//
// The fast kernel runs as many blocks as the multiprocessors hold (so the order of the sums over
// rows is theirs), each of which has one row of `partials`. A thread has the same columns of every
// row, so the weight and the sums over rows stay in its registers. A block treats two vectors of
// each thread together, of two rows where one vector is a thread's part of a row: that halves the
// barriers. The rows of the next two turns are on their way to shared memory meanwhile, 92 KiB of a
// multiprocessor, where each thread reads what it has itself copied.
#include <cuda_pipeline.h>

#include <algorithm>

#include "kernels/cuda/norm.cuh"
#include "kernels/cuda/norm_partials.cuh"

namespace trireme::kernels::cuda {
namespace {

constexpr int max_threads = 512;  // of a block, and of the blocks of a multiprocessor
constexpr int max_vectors = 2;    // of a row, for one thread of the fast kernel
constexpr int stages = 3;         // turns of the fast kernel that have a place in shared memory
constexpr int general_threads = 256;
constexpr int general_rows = static_cast<int>(spec::norm_rows_per_partial);  // of a block

struct Parameters {
  InRows dy, x, weight, bias, dresidual;
  OutRows dx, y;
  const float* stats;
  int64_t stats_stride;
  float* partials;
  int64_t partials_stride;
  int64_t T, D;
  float inverse_D;
  bool has_dbias, has_dresidual_sum;
};

struct RowStats {
  float mean, r;
};
template <NormKind kind>
__device__ RowStats stats_of(const Parameters& a, int64_t t) {
  const float* stats = a.stats + t * a.stats_stride;
  if constexpr (kind == NormKind::rms) return {0.0F, stats[0]};
  return {stats[0], stats[1]};
}

// The sums of n values over the block, all of which get them. Lanes first share the values out
// among them, so that n values cost few more exchanges than one. Calls alternate between two halves
// of `shared`, so that one barrier is enough: what is written in the next call but one was read
// before the barrier of the next call.
template <int n>
struct alignas(4 * n) Sums {
  float at[n];
};
template <int n>
using SharedSums = Sums<n>[2][max_threads / warp_size];

template <int n>
__device__ Sums<n> sums_over_block(Sums<n> sums, SharedSums<n>& shared, int turn) {
  static_assert(n == 1 || n == 2 || n == 4);
  constexpr unsigned all = 0xffffffffU;
  const int warp = threadIdx.x / warp_size, lane = threadIdx.x % warp_size;
  int offset = warp_size / 2;
#pragma unroll
  for (int half = n / 2; half > 0; half /= 2) {
    const bool is_upper = (lane & offset) != 0;
#pragma unroll
    for (int j = 0; j < half; ++j) {
      const float mine = is_upper ? sums.at[half + j] : sums.at[j];
      const float others = is_upper ? sums.at[j] : sums.at[half + j];
      sums.at[j] = mine + __shfl_xor_sync(all, others, offset);
    }
    offset /= 2;
  }
#pragma unroll
  for (int left = warp_size / n / 2; left > 0; left /= 2) {
    sums.at[0] += __shfl_xor_sync(all, sums.at[0], left);
  }
  // Lanes of the i-th n-th of a warp have value i.
  constexpr int lanes = warp_size / n;
  if (lane % lanes == 0) shared[turn][warp].at[lane / lanes] = sums.at[0];
  __syncthreads();
  Sums<n> total = {};
  const int warps = static_cast<int>(blockDim.x) / warp_size;
  for (int w = 0; w < warps; ++w) {
    const Sums<n> part = shared[turn][w];
#pragma unroll
    for (int j = 0; j < n; ++j) total.at[j] += part.at[j];
  }
  return total;
}

// Where the k-th vector of this thread starts in every row.
template <typename T>
__device__ int column(int k) {
  return static_cast<int>(threadIdx.x + k * blockDim.x) * Vec<T>::width;
}

// Places of this thread's vectors in shared memory: [stages][dy, x, dresidual][R * N].
enum class Operand : uint8_t { dy, x, dresidual };
constexpr int vectors_per_turn = 3 * max_vectors;

__device__ uint4& slot(uint4* slots, int stage, Operand operand, int vector) {
  const int place = (stage * 3 + static_cast<int>(operand)) * max_vectors + vector;
  return slots[place * blockDim.x + threadIdx.x];
}

// Starts the copies of rows first, .., first + R - 1, as far as they are there.
template <typename T, int R, int N>
__device__ void fetch(const Parameters& a, uint4* slots, int stage, int64_t first) {
  const auto copy = [&](Operand operand, int vector, const T* from) {
    __pipeline_memcpy_async(&slot(slots, stage, operand, vector), from, 16);
  };
#pragma unroll
  for (int i = 0; i < R; ++i) {
    const int64_t t = first + i;
#pragma unroll
    for (int k = 0; k < N; ++k) {
      const int c = column<T>(k), vector = i * N + k;
      if (t >= a.T || c >= a.D) continue;
      copy(Operand::dy, vector, a.dy.row<T>(t) + c);
      copy(Operand::x, vector, a.x.row<T>(t) + c);
      if (a.dresidual.data != nullptr) {
        copy(Operand::dresidual, vector, a.dresidual.row<T>(t) + c);
      }
    }
  }
  __pipeline_commit();
}

// Waits for the oldest of `stages` fetches. The empty statement keeps the compiler from reading
// slots before it.
__device__ void wait_for_oldest() {
  __pipeline_wait_prior(stages - 1);
  asm volatile("" ::: "memory");
}

// Where the sums of dresidual start in a row of partials, in units of D.
template <NormKind kind>
constexpr int dresidual_place = kind == NormKind::layer ? 2 : 1;

// REQUIRES: all operands are of type T and vectorisable, D <= N vectors for each thread, dynamic
// shared memory of stages * vectors_per_turn vectors a thread; `sums_dresidual` as the parameters
// say, and then there is a dresidual.
template <typename T, NormKind kind, int R, int N, bool sums_dresidual>
__global__ void __launch_bounds__(max_threads) norm_backward_fast(Parameters a) {
  static_assert(R * N == max_vectors);
  constexpr int W = Vec<T>::width;
  constexpr bool is_layer = kind == NormKind::layer;
  constexpr int row_sums = is_layer ? 2 : 1;  // g xhat, and g
  extern __shared__ uint4 slots[];
  __shared__ SharedSums<R * row_sums> shared;
  const int64_t step = static_cast<int64_t>(gridDim.x) * R;
  const int64_t first = static_cast<int64_t>(blockIdx.x) * R;

#pragma unroll
  for (int stage = 0; stage < stages; ++stage) {
    fetch<T, R, N>(a, slots, stage, first + stage * step);
  }
  float weight[N][W] = {}, dweight[N][W] = {}, dbias[N][W] = {}, dresidual[N][W] = {};
#pragma unroll
  for (int k = 0; k < N; ++k) {
    const int c = column<T>(k);
    if (c < a.D) load_values(a.weight.row<T>(0) + c, weight[k]);
  }
  RowStats next_stats[R];
#pragma unroll
  for (int i = 0; i < R; ++i) {
    if (first + i < a.T) next_stats[i] = stats_of<kind>(a, first + i);
  }

  int stage = 0, turn = 0;
  for (int64_t t = first; t < a.T; t += step) {
    float xhat[R][N][W], g[R][N][W], r[R];
    Sums<R* row_sums> sums = {};
    wait_for_oldest();
#pragma unroll
    for (int i = 0; i < R; ++i) {
      const float mean = next_stats[i].mean;
      r[i] = next_stats[i].r;
      if (t + step + i < a.T) next_stats[i] = stats_of<kind>(a, t + step + i);
#pragma unroll
      for (int k = 0; k < N; ++k) {
        if (t + i >= a.T || column<T>(k) >= a.D) continue;
        float dy[W], x[W];
        unpack<T>(slot(slots, stage, Operand::dy, i * N + k), dy);
        unpack<T>(slot(slots, stage, Operand::x, i * N + k), x);
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
        const int c = column<T>(k);
        if (t + i >= a.T || c >= a.D) continue;
        float dx[W] = {};
        if (a.dresidual.data != nullptr) {
          unpack<T>(slot(slots, stage, Operand::dresidual, i * N + k), dx);
        }
#pragma unroll
        for (int j = 0; j < W; ++j) {
          if constexpr (sums_dresidual) dresidual[k][j] += dx[j];
          float inner = g[i][k][j] - xhat[i][k][j] * g_xhat_mean;
          if constexpr (is_layer) inner -= g_mean;
          dx[j] += r[i] * inner;
        }
        store_values(a.dx.row<T>(t + i) + c, dx);
        if (a.y.data != nullptr) {
          float y[W], bias[W] = {};
          if (a.bias.data != nullptr) load_values(a.bias.row<T>(0) + c, bias);
#pragma unroll
          for (int j = 0; j < W; ++j) y[j] = norm_y<kind>(xhat[i][k][j], weight[k][j], bias[j]);
          store_values(a.y.row<T>(t + i) + c, y);
        }
      }
    }
    // What lay in this stage is in dx.
    fetch<T, R, N>(a, slots, stage, t + stages * step);
    stage = stage + 1 == stages ? 0 : stage + 1;
    turn ^= 1;
  }

  float* partial = a.partials + blockIdx.x * a.partials_stride;
#pragma unroll
  for (int k = 0; k < N; ++k) {
    const int c = column<T>(k);
    if (c >= a.D) continue;
    store_floats(partial + c, dweight[k]);
    if (a.has_dbias) store_floats(partial + a.D + c, dbias[k]);
    if constexpr (sums_dresidual) {
      store_floats(partial + dresidual_place<kind> * a.D + c, dresidual[k]);
    }
  }
}

// Any types, strides and widths. A block takes general_rows rows, one at a time; a thread adds up
// its columns in `partials` itself.
template <NormKind kind>
__global__ void __launch_bounds__(general_threads) norm_backward_general(Parameters a) {
  __shared__ SharedSums<2> shared;
  const int64_t first = static_cast<int64_t>(blockIdx.x) * general_rows;
  const int64_t rows = a.T - first < general_rows ? a.T - first : general_rows;
  float* partial = a.partials + blockIdx.x * a.partials_stride;
  float* dresidual = partial + dresidual_place<kind> * a.D;
  for (int64_t c = threadIdx.x; c < a.D; c += blockDim.x) {
    partial[c] = 0;
    if (a.has_dbias) partial[a.D + c] = 0;
    if (a.has_dresidual_sum) dresidual[c] = 0;
  }
  for (int i = 0; i < rows; ++i) {
    const int64_t t = first + i;
    const auto [mean, r] = stats_of<kind>(a, t);
    Sums<2> sums = {};
    for (int64_t c = threadIdx.x; c < a.D; c += blockDim.x) {
      const float dy = a.dy.get(t, c), xhat = norm_xhat<kind>(a.x.get(t, c), mean, r);
      const float g = dy * a.weight.get(0, c);
      partial[c] += dy * xhat;
      if (a.has_dbias) partial[a.D + c] += dy;
      sums.at[0] += g * xhat;
      if constexpr (kind == NormKind::layer) sums.at[1] += g;
    }
    const Sums<2> totals = sums_over_block(sums, shared, i % 2);
    const float g_xhat_mean = totals.at[0] * a.inverse_D, g_mean = totals.at[1] * a.inverse_D;
    for (int64_t c = threadIdx.x; c < a.D; c += blockDim.x) {
      const float weight = a.weight.get(0, c), g = a.dy.get(t, c) * weight;
      const float xhat = norm_xhat<kind>(a.x.get(t, c), mean, r);
      const float residual = a.dresidual.data != nullptr ? a.dresidual.get(t, c) : 0.0F;
      if (a.has_dresidual_sum) dresidual[c] += residual;
      a.dx.set(t, c, r * (g - g_mean - xhat * g_xhat_mean) + residual);
      if (a.y.data != nullptr) {
        const float bias = a.bias.data != nullptr ? a.bias.get(0, c) : 0.0F;
        a.y.set(t, c, norm_y<kind>(xhat, weight, bias));
      }
    }
  }
}

bool is_fast(const NormBackwardArgs& args) {
  const base::DType dtype = args.x.dtype;
  const int64_t width = 16 / base::size_of(dtype);
  return args.x.cols() <= width * max_vectors * max_threads && is_fast_matrix(args.dy, dtype) &&
         is_fast_matrix(args.x, dtype) && is_fast_matrix(args.dresidual, dtype) &&
         is_fast_matrix(args.dx, dtype) && is_fast_matrix(args.y, dtype) &&
         is_fast_vector(args.weight, dtype) && is_fast_vector(args.bias, dtype) &&
         is_vectorisable(args.partials);
}

// Each returns how many rows of partials it fills.
template <typename T, NormKind kind, bool sums_dresidual>
int64_t launch_fast(device::CudaStream& stream, const Parameters& a) {
  const int64_t moves = a.D / Vec<T>::width;
  const int64_t vectors = moves <= max_threads ? 1 : 2;
  const int64_t threads = ceil_div(moves, vectors * warp_size) * warp_size;
  const int64_t resident = stream.cuda_device().multiprocessors() * (max_threads / threads);
  const int64_t blocks = std::min(norm_partials(a.T), resident);
  const auto kernel = vectors == 1 ? norm_backward_fast<T, kind, 2, 1, sums_dresidual>
                                   : norm_backward_fast<T, kind, 1, 2, sums_dresidual>;
  constexpr int64_t thread_bytes = 16 * stages * vectors_per_turn;
  device::cuda_check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                          static_cast<int>(thread_bytes * max_threads)),
                     "norm_backward: shared memory");
  device::cuda_check(cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout,
                                          cudaSharedmemCarveoutMaxShared),
                     "norm_backward: shared memory");
  kernel<<<grid_of(blocks), static_cast<unsigned>(threads),
           static_cast<size_t>(thread_bytes * threads), stream.handle()>>>(a);
  return blocks;
}

template <NormKind kind>
int64_t launch(device::CudaStream& stream, const NormBackwardArgs& args, const Parameters& a) {
  int64_t blocks = norm_partials(a.T);
  if (is_fast(args)) {
    with_real_type(args.x.dtype, [&](auto* type) {
      using T = std::remove_pointer_t<decltype(type)>;
      blocks = a.has_dresidual_sum ? launch_fast<T, kind, true>(stream, a)
                                   : launch_fast<T, kind, false>(stream, a);
    });
  } else {
    norm_backward_general<kind><<<grid_of(blocks), general_threads, 0, stream.handle()>>>(a);
  }
  return blocks;
}

}  // namespace

void norm_backward(Stream& stream, const NormBackwardArgs& args) {
  const int64_t T = args.x.rows(), D = args.x.cols();
  if (T == 0 || D == 0) return;
  TRIREME_CHECK(!args.dbias || args.kind == NormKind::layer,
                "norm_backward: an rms norm has no bias");
  const Parameters a = {.dy = in_rows(args.dy),
                        .x = in_rows(args.x),
                        .weight = in_vector(args.weight),
                        .bias = in_vector(args.bias),
                        .dresidual = in_rows(args.dresidual),
                        .dx = out_rows(args.dx),
                        .y = out_rows(args.y),
                        .stats = data<float>(args.stats),
                        .stats_stride = args.stats.row_stride,
                        .partials = data<float>(args.partials),
                        .partials_stride = args.partials.row_stride,
                        .T = T,
                        .D = D,
                        .inverse_D = 1.0F / static_cast<float>(D),
                        .has_dbias = static_cast<bool>(args.dbias),
                        .has_dresidual_sum = static_cast<bool>(args.dresidual_sum)};
  device::CudaStream& cuda = device::cuda_stream(stream);
  const bool is_layer = args.kind == NormKind::layer;
  const int64_t blocks =
      is_layer ? launch<NormKind::layer>(cuda, args, a) : launch<NormKind::rms>(cuda, args, a);
  check_launch("norm_backward");
  const PartialSums sums = is_layer ? PartialSums{args.dweight, args.dbias, args.dresidual_sum}
                                    : PartialSums{args.dweight, args.dresidual_sum, Tensor{}};
  add_partials(cuda.handle(), args.partials.slice_rows(0, blocks), sums);
}

}  // namespace trireme::kernels::cuda
