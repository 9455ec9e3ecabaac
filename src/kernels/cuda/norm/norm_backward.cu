// SPDX-License-Identifier: Apache-2.0
// With xhat = (x - mean) r and g = dy weight:
//   dx = r (g - mean(g) - xhat mean(g xhat)) + dresidual, for rms without mean(g);
//   dweight += sum over t of dy xhat;  dbias += sum over t of dy;  y = xhat weight + bias;
//   dresidual_sum += sum over t of dresidual.
// Bound by memory: dy, x, dresidual and dx (and y) once each.
#include <algorithm>

#include "kernels/cuda/norm/norm_backward_fast.cuh"
#include "kernels/cuda/norm/norm_partials.cuh"

namespace trireme::kernels::cuda {
namespace {

constexpr int general_backward_threads = 256;
constexpr int general_rows = static_cast<int>(spec::norm_rows_per_partial);  // of a block

// Any types, strides and widths. A block processes general_rows rows, one at a time; a thread sums
// its columns in `partials`.
template <NormKind kind>
__global__ void __launch_bounds__(general_backward_threads) norm_backward_general(NormBackward a) {
  __shared__ SharedSums<2> shared;
  const int64_t first = static_cast<int64_t>(blockIdx.x) * general_rows;
  const int64_t rows = a.T - first < general_rows ? a.T - first : general_rows;
  float* partial = a.partials + blockIdx.x * a.partials_stride;
  float* dresidual = partial + dresidual_place<kind> * a.D;
  Largest<float> largest;
  for (int64_t c = threadIdx.x; c < a.D; c += blockDim.x) {
    partial[c] = 0;
    if (a.has_dbias) partial[a.D + c] = 0;
    if (a.has_dresidual_sum) dresidual[c] = 0;
  }
  for (int i = 0; i < rows; ++i) {
    const int64_t t = first + i;
    const auto [mean, r] = stats_at<kind>(a.stats + t * a.stats_stride);
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
      if (a.amax != nullptr) largest.add(a.dx.get(t, c));
      if (a.y.data != nullptr) {
        const float bias = a.bias.data != nullptr ? a.bias.get(0, c) : 0.0F;
        a.y.set(t, c, norm_y<kind>(xhat, weight, bias));
      }
    }
  }
  __shared__ uint32_t maxima[general_backward_threads / warp_size];
  if (a.amax != nullptr) raise_by_block(a.amax, largest.bits(), maxima);
}

bool is_fast(const NormBackwardArgs& args) {
  const base::DType dtype = args.x.dtype;
  const int64_t width = 16 / base::size_of(dtype);
  // Magnitudes are used with bf16 only; there is no fast kernel for other types.
  if (args.amax && dtype != base::DType::bf16) return false;
  return args.x.rows() <= INT32_MAX / 2 &&
         args.x.cols() <= width * max_vectors * norm_max_threads &&
         is_fast_matrix(args.dy, dtype) && is_fast_matrix(args.x, dtype) &&
         is_fast_matrix(args.dresidual, dtype) && is_fast_matrix(args.dx, dtype) &&
         is_fast_matrix(args.y, dtype) && is_fast_vector(args.weight, dtype) &&
         is_fast_vector(args.bias, dtype) && is_vectorisable(args.partials);
}

// Each returns the number of rows of partials that it fills.
template <typename T, NormKind kind, bool sums_dresidual, bool raises>
int64_t launch_fast(device::CudaStream& stream, const NormBackward& a) {
  const int64_t moves = a.D / Vec<T>::width;
  const int64_t vectors = moves <= norm_max_threads ? 1 : 2;
  const int64_t threads = ceil_div(moves, vectors * warp_size) * warp_size;
  const int64_t resident = stream.cuda_device().multiprocessors() * (norm_max_threads / threads);
  const int64_t blocks = std::min(norm_partials(a.T), resident);
  const auto kernel = vectors == 1 ? norm_backward_fast<T, kind, 2, 1, sums_dresidual, raises>
                                   : norm_backward_fast<T, kind, 1, 2, sums_dresidual, raises>;
  constexpr int64_t thread_bytes = 16 * stages * vectors_per_turn;
  device::cuda_check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                          static_cast<int>(thread_bytes * norm_max_threads)),
                     "norm_backward: shared memory");
  device::cuda_check(cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout,
                                          cudaSharedmemCarveoutMaxShared),
                     "norm_backward: shared memory");
  kernel<<<grid_of(blocks), static_cast<unsigned>(threads),
           static_cast<size_t>(thread_bytes * threads), stream.handle()>>>(a);
  return blocks;
}

template <NormKind kind>
int64_t launch(device::CudaStream& stream, const NormBackwardArgs& args, const NormBackward& a) {
  int64_t blocks = norm_partials(a.T);
  if (is_fast(args) && a.amax != nullptr) {
    blocks = a.has_dresidual_sum ? launch_fast<bf16, kind, true, true>(stream, a)
                                 : launch_fast<bf16, kind, false, true>(stream, a);
  } else if (is_fast(args)) {
    with_real_type(args.x.dtype, [&](auto* type) {
      using T = std::remove_pointer_t<decltype(type)>;
      blocks = a.has_dresidual_sum ? launch_fast<T, kind, true, false>(stream, a)
                                   : launch_fast<T, kind, false, false>(stream, a);
    });
  } else {
    norm_backward_general<kind>
        <<<grid_of(blocks), general_backward_threads, 0, stream.handle()>>>(a);
  }
  return blocks;
}

}  // namespace

void norm_backward(Stream& stream, const NormBackwardArgs& args) {
  const int64_t T = args.x.rows(), D = args.x.cols();
  if (T == 0 || D == 0) return;
  TRIREME_CHECK(!args.dbias || args.kind == NormKind::layer,
                "norm_backward: an rms norm has no bias");
  const NormBackward a = {.dy = in_rows(args.dy),
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
                          .has_dresidual_sum = static_cast<bool>(args.dresidual_sum),
                          .amax = amax_bits(args.amax)};
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
