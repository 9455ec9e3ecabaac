// SPDX-License-Identifier: Apache-2.0
// With xhat = (x - mean) r and g = dy weight:
//   dx = r (g - mean(g) - xhat mean(g xhat)) + dresidual, for rms without mean(g);
//   dweight += sum over t of dy xhat;  dbias += sum over t of dy;  y = xhat weight + bias;
//   dresidual_sum += sum over t of dresidual.
// Bound by memory: dy, x, dresidual and dx (and y) once each.
#include <algorithm>

#include "kernels/cuda/norm/norm_backward_fast.cuh"
#include "kernels/cuda/norm/norm_backward_general.cuh"
#include "kernels/cuda/norm/norm_partials.cuh"

namespace trireme::kernels::cuda {
namespace {

// Do all operands consist of vectors of x's type?
bool has_vectors(const NormBackwardArgs& args) {
  const base::DType dtype = args.x.dtype;
  return is_fast_matrix(args.dy, dtype) && is_fast_matrix(args.x, dtype) &&
         is_fast_matrix(args.dresidual, dtype) && is_fast_matrix(args.dx, dtype) &&
         is_fast_matrix(args.y, dtype) && is_fast_vector(args.weight, dtype) &&
         is_fast_vector(args.bias, dtype) && is_vectorisable(args.partials);
}

bool is_fast(const NormBackwardArgs& args) {
  const base::DType dtype = args.x.dtype;
  const int64_t width = 16 / base::size_of(dtype);
  // Magnitudes are used with bf16 only; there is no fast kernel for other types.
  if (args.amax && dtype != base::DType::bf16) return false;
  return has_vectors(args) && args.x.rows() <= INT32_MAX / 2 &&
         args.x.cols() <= width * max_vectors * norm_max_threads;
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

template <typename Elements, NormKind kind>
int64_t launch_general(device::CudaStream& stream, const NormBackward& a) {
  const int64_t blocks = norm_partials(a.T), moves = ceil_div(a.D, Elements::width);
  const dim3 columns(grid_of(blocks), grid_of(ceil_div(moves, column_threads)));
  norm_backward_columns<Elements, kind><<<columns, column_threads, 0, stream.handle()>>>(a);
  const int64_t threads = std::min<int64_t>(base::round_up(moves, warp_size), row_threads);
  norm_backward_rows<Elements, kind>
      <<<grid_of(a.T), static_cast<unsigned>(threads), 0, stream.handle()>>>(a);
  return blocks;
}

template <NormKind kind>
int64_t launch(device::CudaStream& stream, const NormBackwardArgs& args, const NormBackward& a) {
  int64_t blocks = 0;
  if (is_fast(args) && a.amax != nullptr) {
    blocks = a.has_dresidual_sum ? launch_fast<bf16, kind, true, true>(stream, a)
                                 : launch_fast<bf16, kind, false, true>(stream, a);
  } else if (is_fast(args)) {
    with_real_type(args.x.dtype, [&](auto* type) {
      using T = std::remove_pointer_t<decltype(type)>;
      blocks = a.has_dresidual_sum ? launch_fast<T, kind, true, false>(stream, a)
                                   : launch_fast<T, kind, false, false>(stream, a);
    });
  } else if (has_vectors(args)) {
    with_real_type(args.x.dtype, [&](auto* type) {
      using T = std::remove_pointer_t<decltype(type)>;
      blocks = launch_general<Vectors<T>, kind>(stream, a);
    });
  } else {
    blocks = launch_general<Singles, kind>(stream, a);
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
