// SPDX-License-Identifier: Apache-2.0
// s = x + residual;  y = (s - mean) r weight + bias, r = (mean((s - mean)^2) + eps)^-1/2; rms takes
// the mean as 0. Bound by memory: x and y, and residual and sum, once each.
//
// The fast kernel keeps a row in the registers of a warp (short rows) or of a block, so the
// variance is summed around the mean without a second read. The general one reads rows again. Sums
// are fp32 within a thread and fp64 across threads. The mean is rounded to fp32, as
// norm_backward receives it: an error of half a bit of elements as large as the mean.
//
// Kernels with `raises` also find the largest magnitude of y.
#include "kernels/cuda/norm/norm.cuh"
#include "kernels/cuda/quantize/magnitude.cuh"

namespace trireme::kernels::cuda {
namespace {

constexpr int max_vectors = 4;      // of a row, kept by one thread of the fast kernel
constexpr int warps_per_block = 8;  // if a warp computes a row
constexpr int max_threads = 512;    // if a block does
constexpr int general_forward_threads = 256;

struct Parameters {
  InRows x, residual, weight, bias;
  OutRows sum, y;
  float* stats;
  int64_t stats_stride;
  int64_t T, D;
  float eps;
  double inverse_D;
  uint32_t* amax;
};

// The sum over a warp, or over the block through `shared`, which no other sum may use. All threads
// receive the result.
template <bool is_warp>
__device__ double team_sum(float value, double* shared) {
  double sum = warp_sum(static_cast<double>(value));
  if constexpr (!is_warp) {
    const int warp = threadIdx.x / warp_size, lane = threadIdx.x % warp_size;
    const int warps = blockDim.x / warp_size;
    if (lane == 0) shared[warp] = sum;
    __syncthreads();
    sum = warp_sum(lane < warps ? shared[lane] : 0.0);
  }
  return sum;
}

template <NormKind kind, bool is_warp>
__device__ float mean_of(const Parameters& a, float sum, double* shared) {
  if constexpr (kind == NormKind::rms) return 0;
  return static_cast<float>(team_sum<is_warp>(sum, shared) * a.inverse_D);
}

template <bool is_warp>
__device__ float reciprocal_deviation(const Parameters& a, float squares, double* shared) {
  const double variance = team_sum<is_warp>(squares, shared) * a.inverse_D;
  return 1.0F / sqrtf(static_cast<float>(variance + static_cast<double>(a.eps)));
}

template <NormKind kind>
__device__ void store_stats(const Parameters& a, int64_t t, float mean, float r) {
  float* stats = a.stats + t * a.stats_stride;
  if constexpr (kind == NormKind::layer) {
    stats[0] = mean;
    stats[1] = r;
  } else {
    stats[0] = r;
  }
}

// Computes row t. REQUIRES: all operands are of type T and vectorisable; a team of `threads` holds
// a row of `N` vectors a thread.
template <typename T, NormKind kind, bool is_warp, int N, bool raises>
__device__ void norm_row(const Parameters& a, int64_t t, Largest<T>& largest) {
  constexpr int W = Vec<T>::width;
  __shared__ double shared[2][warp_size];
  const int threads = is_warp ? warp_size : static_cast<int>(blockDim.x);
  const int thread =
      is_warp ? static_cast<int>(threadIdx.x) % warp_size : static_cast<int>(threadIdx.x);
  const int D = static_cast<int>(a.D);

  float s[N][W];
  if (a.residual.data != nullptr) {
    uint4 x[N], residual[N];  // all loads are issued before the first sum is stored
#pragma unroll
    for (int k = 0; k < N; ++k) {
      const int c = (thread + k * threads) * W;
      if (c >= D) continue;
      x[k] = load_bits(a.x.row<T>(t) + c);
      residual[k] = load_bits(a.residual.row<T>(t) + c);
    }
#pragma unroll
    for (int k = 0; k < N; ++k) {
      const int c = (thread + k * threads) * W;
      if (c >= D) continue;
      float other[W];
      unpack<T>(x[k], s[k]);
      unpack<T>(residual[k], other);
#pragma unroll
      for (int j = 0; j < W; ++j) s[k][j] += other[j];
      const uint4 rounded = pack<T>(s[k]);
      store_bits(a.sum.row<T>(t) + c, rounded);
      unpack<T>(rounded, s[k]);
    }
  } else {
#pragma unroll
    for (int k = 0; k < N; ++k) {
      const int c = (thread + k * threads) * W;
      if (c < D) load_values(a.x.row<T>(t) + c, s[k]);
    }
  }
  float sum = 0;
  if constexpr (kind == NormKind::layer) {
#pragma unroll
    for (int k = 0; k < N; ++k) {
      if ((thread + k * threads) * W >= D) continue;
#pragma unroll
      for (int j = 0; j < W; ++j) sum += s[k][j];
    }
  }
  const float mean = mean_of<kind, is_warp>(a, sum, shared[0]);
  float squares = 0;
#pragma unroll
  for (int k = 0; k < N; ++k) {
    if ((thread + k * threads) * W >= D) continue;
#pragma unroll
    for (int j = 0; j < W; ++j) {
      const float distance = s[k][j] - mean;
      squares += distance * distance;
    }
  }
  const float r = reciprocal_deviation<is_warp>(a, squares, shared[1]);
  if (thread == 0) store_stats<kind>(a, t, mean, r);

#pragma unroll
  for (int k = 0; k < N; ++k) {
    const int c = (thread + k * threads) * W;
    if (c >= D) continue;
    float weight[W], bias[W] = {};
    load_values(a.weight.row<T>(0) + c, weight);
    if (a.bias.data != nullptr) load_values(a.bias.row<T>(0) + c, bias);
#pragma unroll
    for (int j = 0; j < W; ++j) {
      s[k][j] = norm_y<kind>(norm_xhat<kind>(s[k][j], mean, r), weight[j], bias[j]);
    }
    if constexpr (raises) {
      store_values(a.y.row<T>(t) + c, s[k], largest);
    } else {
      store_values(a.y.row<T>(t) + c, s[k]);
    }
  }
}

template <typename T, NormKind kind, bool is_warp, int N, bool raises>
__global__ void __launch_bounds__(is_warp ? warps_per_block* warp_size : max_threads)
    norm_forward_fast(Parameters a) {
  const int64_t t =
      is_warp ? static_cast<int64_t>(blockIdx.x) * warps_per_block + threadIdx.x / warp_size
              : static_cast<int64_t>(blockIdx.x);
  Largest<T> largest;
  // Complete warps, and always if a block computes a row.
  if (t < a.T) norm_row<T, kind, is_warp, N, raises>(a, t, largest);
  if constexpr (raises) {
    __shared__ uint32_t maxima[max_threads / warp_size];
    raise_by_block(a.amax, largest.bits(), maxima);
  }
}

// A block computes a row. Any types, strides and widths: s is read again by the thread that stored
// it.
template <NormKind kind>
__global__ void __launch_bounds__(general_forward_threads) norm_forward_general(Parameters a) {
  __shared__ double shared[2][warp_size];
  const int64_t t = blockIdx.x;
  const bool has_residual = a.residual.data != nullptr;
  const auto s_at = [&](int64_t c) { return has_residual ? a.sum.get(t, c) : a.x.get(t, c); };
  float sum = 0;
  for (int64_t c = threadIdx.x; c < a.D; c += blockDim.x) {
    if (has_residual) a.sum.set(t, c, a.x.get(t, c) + a.residual.get(t, c));
    sum += s_at(c);
  }
  const float mean = mean_of<kind, false>(a, sum, shared[0]);
  float squares = 0;
  for (int64_t c = threadIdx.x; c < a.D; c += blockDim.x) {
    const float distance = s_at(c) - mean;
    squares += distance * distance;
  }
  const float r = reciprocal_deviation<false>(a, squares, shared[1]);
  if (threadIdx.x == 0) store_stats<kind>(a, t, mean, r);
  Largest<float> largest;
  for (int64_t c = threadIdx.x; c < a.D; c += blockDim.x) {
    const float bias = a.bias.data != nullptr ? a.bias.get(0, c) : 0.0F;
    a.y.set(t, c, norm_y<kind>(norm_xhat<kind>(s_at(c), mean, r), a.weight.get(0, c), bias));
    if (a.amax != nullptr) largest.add(a.y.get(t, c));
  }
  __shared__ uint32_t maxima[general_forward_threads / warp_size];
  if (a.amax != nullptr) raise_by_block(a.amax, largest.bits(), maxima);
}

bool is_fast(const NormForwardArgs& args) {
  const base::DType dtype = args.x.dtype;
  const int64_t width = 16 / base::size_of(dtype);
  // Magnitudes are used with bf16 only; there is no fast kernel for other types.
  if (args.amax && dtype != base::DType::bf16) return false;
  return args.x.cols() <= width * max_vectors * max_threads && is_fast_matrix(args.x, dtype) &&
         is_fast_matrix(args.residual, dtype) && is_fast_matrix(args.sum, dtype) &&
         is_fast_matrix(args.y, dtype) && is_fast_vector(args.weight, dtype) &&
         is_fast_vector(args.bias, dtype);
}

// A warp computes a row if N vectors a lane are enough, otherwise a block does.
template <typename T, NormKind kind, bool raises, int N = 1>
void launch_fast(cudaStream_t stream, const Parameters& a) {
  const int64_t moves = a.D / Vec<T>::width;
  if (moves <= N * warp_size) {
    norm_forward_fast<T, kind, true, N, raises>
        <<<grid_of(ceil_div(a.T, warps_per_block)), warps_per_block * warp_size, 0, stream>>>(a);
  } else if constexpr (N < max_vectors) {
    launch_fast<T, kind, raises, N + 1>(stream, a);
  } else {
    const int64_t threads = ceil_div(moves, N * warp_size) * warp_size;
    norm_forward_fast<T, kind, false, N, raises>
        <<<grid_of(a.T), static_cast<unsigned>(threads), 0, stream>>>(a);
  }
}

template <NormKind kind>
void launch(cudaStream_t stream, const NormForwardArgs& args, const Parameters& a) {
  if (is_fast(args) && a.amax != nullptr) {
    launch_fast<bf16, kind, true>(stream, a);
  } else if (is_fast(args)) {
    with_real_type(args.x.dtype, [&](auto* type) {
      launch_fast<std::remove_pointer_t<decltype(type)>, kind, false>(stream, a);
    });
  } else {
    norm_forward_general<kind><<<grid_of(a.T), general_forward_threads, 0, stream>>>(a);
  }
}

}  // namespace

void norm_forward(Stream& stream, const NormForwardArgs& args) {
  const int64_t T = args.x.rows(), D = args.x.cols();
  if (T == 0 || D == 0) return;
  const Parameters a = {.x = in_rows(args.x),
                        .residual = in_rows(args.residual),
                        .weight = in_vector(args.weight),
                        .bias = in_vector(args.bias),
                        .sum = out_rows(args.sum),
                        .y = out_rows(args.y),
                        .stats = data<float>(args.stats),
                        .stats_stride = args.stats.row_stride,
                        .T = T,
                        .D = D,
                        .eps = args.eps,
                        .inverse_D = 1.0 / static_cast<double>(D),
                        .amax = amax_bits(args.amax)};
  const cudaStream_t handle = device::cuda_stream(stream).handle();
  args.kind == NormKind::rms ? launch<NormKind::rms>(handle, args, a)
                             : launch<NormKind::layer>(handle, args, a);
  check_launch("norm_forward");
}

}  // namespace trireme::kernels::cuda
