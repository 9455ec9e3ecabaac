// SPDX-License-Identifier: Apache-2.0
// With xhat = (x - mean) r and g = dy weight:
//   dx = r (g - mean(g) - xhat mean(g xhat)) + dresidual, for rms without mean(g);
//   dweight += sum over t of dy xhat;  dbias += sum over t of dy.
// Bound by memory: dy, x, dresidual and dx once each.
//
// A block takes the norm_rows_per_partial rows of one row of `partials`, one row at a time. In the
// fast kernel a thread has the same columns of every row, so the weight and the sums over rows stay
// in its registers, and the next row is on its way while the sums along this one are taken.
#include "kernels/cuda/norm_partials.cuh"
#include "kernels/cuda/rows.h"
#include "kernels/cuda/values.cuh"

namespace trireme::kernels::cuda {
namespace {

constexpr int max_threads = 512;
constexpr int max_vectors = 2;  // of a row, for one thread of the fast kernel
constexpr int general_threads = 256;
constexpr int rows_per_block = static_cast<int>(spec::norm_rows_per_partial);

struct Parameters {
  InRows dy, x, weight, dresidual;
  OutRows dx;
  const float* stats;
  int64_t stats_stride;
  float* partials;
  int64_t partials_stride;
  int64_t T, D;
  float inverse_D;
  bool has_dbias;

  __device__ int rows_here() const {
    const int64_t left = T - static_cast<int64_t>(blockIdx.x) * rows_per_block;
    return left < rows_per_block ? static_cast<int>(left) : rows_per_block;
  }
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

// Sums of g and of g xhat over the block, divided by D. Calls alternate between two halves of
// `shared`, so that one barrier a row is enough: what is written in the next row but one was read
// before the barrier of the next row.
struct RowSums {
  float g, g_xhat;
};
using SharedSums = RowSums[2][max_threads / warp_size];

template <NormKind kind>
__device__ RowSums means_over_block(RowSums sums, SharedSums& shared, int i, float inverse_D) {
  const int warp = threadIdx.x / warp_size, warps = blockDim.x / warp_size;
  if constexpr (kind == NormKind::layer) sums.g = warp_sum(sums.g);
  sums.g_xhat = warp_sum(sums.g_xhat);
  if (threadIdx.x % warp_size == 0) shared[i % 2][warp] = sums;
  __syncthreads();
  RowSums total = {0, 0};
  for (int w = 0; w < warps; ++w) {
    total.g += shared[i % 2][w].g;
    total.g_xhat += shared[i % 2][w].g_xhat;
  }
  return {total.g * inverse_D, total.g_xhat * inverse_D};
}

// What one thread has of one row.
template <int N>
struct Piece {
  uint4 dy[N], x[N], dresidual[N];
  RowStats stats;
};

template <typename T, NormKind kind, int N>
__device__ void load_piece(const Parameters& a, int64_t t, Piece<N>& piece) {
  piece.stats = stats_of<kind>(a, t);
#pragma unroll
  for (int k = 0; k < N; ++k) {
    const int64_t c = (threadIdx.x + k * blockDim.x) * Vec<T>::width;
    if (c >= a.D) continue;
    piece.dy[k] = load_bits(a.dy.row<T>(t) + c);
    piece.x[k] = load_bits(a.x.row<T>(t) + c);
    if (a.dresidual.data != nullptr) piece.dresidual[k] = load_bits(a.dresidual.row<T>(t) + c);
  }
}

// REQUIRES: all operands are of type T and vectorisable, D <= N vectors for each thread.
template <typename T, NormKind kind, int N>
__global__ void __launch_bounds__(max_threads) norm_backward_fast(Parameters a) {
  constexpr int W = Vec<T>::width;
  __shared__ SharedSums shared;
  const int64_t first = static_cast<int64_t>(blockIdx.x) * rows_per_block;
  const int rows = a.rows_here();
  const uint4 zero = make_uint4(0, 0, 0, 0);

  // Columns beyond D hold zeros, which add nothing to any sum.
  uint4 weight[N];
  Piece<N> next;
  float dweight[N][W] = {}, dbias[N][W] = {};
#pragma unroll
  for (int k = 0; k < N; ++k) {
    const int64_t c = (threadIdx.x + k * blockDim.x) * W;
    weight[k] = c < a.D ? load_bits(a.weight.row<T>(0) + c) : zero;
    next.dy[k] = next.x[k] = next.dresidual[k] = zero;
  }
  load_piece<T, kind, N>(a, first, next);

  for (int i = 0; i < rows; ++i) {
    const int64_t t = first + i;
    const Piece<N> now = next;
    if (i + 1 < rows) load_piece<T, kind, N>(a, t + 1, next);
    const auto [mean, r] = now.stats;
    RowSums sums = {0, 0};
#pragma unroll
    for (int k = 0; k < N; ++k) {
      float dy[W], x[W], w[W];
      unpack<T>(now.dy[k], dy);
      unpack<T>(now.x[k], x);
      unpack<T>(weight[k], w);
#pragma unroll
      for (int j = 0; j < W; ++j) {
        const float xhat = (x[j] - mean) * r, g = dy[j] * w[j];
        dweight[k][j] += dy[j] * xhat;
        if constexpr (kind == NormKind::layer) dbias[k][j] += dy[j];
        sums.g += g;
        sums.g_xhat += g * xhat;
      }
    }
    const RowSums means = means_over_block<kind>(sums, shared, i, a.inverse_D);
#pragma unroll
    for (int k = 0; k < N; ++k) {
      const int64_t c = (threadIdx.x + k * blockDim.x) * W;
      if (c >= a.D) continue;
      float dy[W], x[W], w[W], dx[W];
      unpack<T>(now.dy[k], dy);
      unpack<T>(now.x[k], x);
      unpack<T>(weight[k], w);
      unpack<T>(now.dresidual[k], dx);
#pragma unroll
      for (int j = 0; j < W; ++j) {
        const float xhat = (x[j] - mean) * r;
        float inner = dy[j] * w[j] - xhat * means.g_xhat;
        if constexpr (kind == NormKind::layer) inner -= means.g;
        dx[j] += r * inner;
      }
      store_values(a.dx.row<T>(t) + c, dx);
    }
  }

  float* partial = a.partials + blockIdx.x * a.partials_stride;
#pragma unroll
  for (int k = 0; k < N; ++k) {
    const int64_t c = (threadIdx.x + k * blockDim.x) * W;
    if (c >= a.D) continue;
    store_floats(partial + c, dweight[k]);
    if (a.has_dbias) store_floats(partial + a.D + c, dbias[k]);
  }
}

// Any types, strides and widths: a thread adds up its columns in `partials` itself.
template <NormKind kind>
__global__ void __launch_bounds__(general_threads) norm_backward_general(Parameters a) {
  __shared__ SharedSums shared;
  const int64_t first = static_cast<int64_t>(blockIdx.x) * rows_per_block;
  const int rows = a.rows_here();
  float* partial = a.partials + blockIdx.x * a.partials_stride;
  for (int64_t c = threadIdx.x; c < a.D; c += blockDim.x) {
    partial[c] = 0;
    if (a.has_dbias) partial[a.D + c] = 0;
  }
  for (int i = 0; i < rows; ++i) {
    const int64_t t = first + i;
    const auto [mean, r] = stats_of<kind>(a, t);
    RowSums sums = {0, 0};
    for (int64_t c = threadIdx.x; c < a.D; c += blockDim.x) {
      const float dy = a.dy.get(t, c), xhat = (a.x.get(t, c) - mean) * r;
      const float g = dy * a.weight.get(0, c);
      partial[c] += dy * xhat;
      if (a.has_dbias) partial[a.D + c] += dy;
      sums.g += g;
      sums.g_xhat += g * xhat;
    }
    RowSums means = means_over_block<kind>(sums, shared, i, a.inverse_D);
    if constexpr (kind == NormKind::rms) means.g = 0;
    for (int64_t c = threadIdx.x; c < a.D; c += blockDim.x) {
      const float g = a.dy.get(t, c) * a.weight.get(0, c);
      const float xhat = (a.x.get(t, c) - mean) * r;
      const float residual = a.dresidual.data != nullptr ? a.dresidual.get(t, c) : 0.0F;
      a.dx.set(t, c, r * (g - means.g - xhat * means.g_xhat) + residual);
    }
  }
}

bool is_fast(const NormBackwardArgs& args) {
  const base::DType dtype = args.x.dtype;
  const int64_t width = 16 / base::size_of(dtype);
  return args.x.cols() <= width * max_vectors * max_threads && is_fast_matrix(args.dy, dtype) &&
         is_fast_matrix(args.x, dtype) && is_fast_matrix(args.dresidual, dtype) &&
         is_fast_matrix(args.dx, dtype) && is_fast_vector(args.weight, dtype) &&
         is_vectorisable(args.partials);
}

template <typename T, NormKind kind>
void launch_fast(cudaStream_t stream, unsigned grid, const Parameters& a) {
  const int64_t moves = a.D / Vec<T>::width;
  const int64_t vectors = moves <= max_threads ? 1 : 2;
  const auto threads = static_cast<unsigned>(ceil_div(moves, vectors * warp_size) * warp_size);
  if (vectors == 1) {
    norm_backward_fast<T, kind, 1><<<grid, threads, 0, stream>>>(a);
  } else {
    norm_backward_fast<T, kind, 2><<<grid, threads, 0, stream>>>(a);
  }
}

template <NormKind kind>
void launch(cudaStream_t stream, const NormBackwardArgs& args, const Parameters& a) {
  const unsigned grid = grid_of(norm_partials(a.T));
  if (is_fast(args)) {
    with_real_type(args.x.dtype, [&](auto* type) {
      launch_fast<std::remove_pointer_t<decltype(type)>, kind>(stream, grid, a);
    });
  } else {
    norm_backward_general<kind><<<grid, general_threads, 0, stream>>>(a);
  }
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
                        .dresidual = in_rows(args.dresidual),
                        .dx = out_rows(args.dx),
                        .stats = data<float>(args.stats),
                        .stats_stride = args.stats.row_stride,
                        .partials = data<float>(args.partials),
                        .partials_stride = args.partials.row_stride,
                        .T = T,
                        .D = D,
                        .inverse_D = 1.0F / static_cast<float>(D),
                        .has_dbias = static_cast<bool>(args.dbias)};
  const cudaStream_t handle = device::cuda_stream(stream).handle();
  args.kind == NormKind::rms ? launch<NormKind::rms>(handle, args, a)
                             : launch<NormKind::layer>(handle, args, a);
  check_launch("norm_backward");
  add_partials(handle, args.partials, args.dweight, args.dbias);
}

}  // namespace trireme::kernels::cuda
