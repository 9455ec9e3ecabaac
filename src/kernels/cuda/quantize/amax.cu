// SPDX-License-Identifier: Apache-2.0
// amax = max(amax, largest magnitude of x): one read of x, one atomic operation a block. A thread
// has eight vectors of 16 bytes in flight.
#include <algorithm>

#include "kernels/cuda/quantize/float8.cuh"
#include "kernels/cuda/table_ops.h"
#include "kernels/cuda/values.cuh"

namespace trireme::kernels::cuda {
namespace {

constexpr int amax_threads = 256;
constexpr int amax_vectors = 8;  // of a thread at a time

// Rows blockIdx.y, + gridDim.y, ...; W elements at a time.
template <typename T, int W>
__global__ void __launch_bounds__(amax_threads)
    amax_kernel(const T* x, int64_t stride, UsedRows used, int64_t cols, bool is_flat,
                uint32_t* amax) {
  __shared__ uint32_t shared[amax_threads / warp_size];
  const int64_t rows = is_flat ? 1 : used.count();
  if (is_flat) cols *= used.count();
  const int64_t step = static_cast<int64_t>(gridDim.x) * (amax_threads * W);
  const int64_t first = (static_cast<int64_t>(blockIdx.x) * amax_threads + threadIdx.x) * W;
  Largest<T> largest;
  for (int64_t row = blockIdx.y; row < rows; row += gridDim.y) {
    const T* from = x + row * stride;
    if constexpr (W == 1) {
      for (int64_t c = first; c < cols; c += step) {
        largest.add(from[c]);
      }
    } else {
      for (int64_t c = first; c < cols; c += amax_vectors * step) {
        uint4 bits[amax_vectors];
#pragma unroll
        for (int i = 0; i < amax_vectors; ++i) {
          const int64_t at = c + i * step;
          bits[i] = at < cols ? load_bits(from + at) : make_uint4(0, 0, 0, 0);
        }
#pragma unroll
        for (int i = 0; i < amax_vectors; ++i) largest.add(bits[i]);
      }
    }
  }
  raise_by_block(amax, largest.bits(), shared);
}

template <typename T>
void launch_amax(device::CudaStream& stream, const AmaxArgs& args) {
  const ConstTensor& x = args.x;
  const bool is_flat = x.is_contiguous();  // one long row
  const int64_t rows = is_flat ? 1 : x.rows(), cols = is_flat ? x.rows() * x.cols() : x.cols();
  const bool is_wide = is_vectorisable(x);
  const int64_t per_block = amax_threads * (is_wide ? Vec<T>::width * amax_vectors : 1);
  const int64_t resident = int64_t{8} * stream.cuda_device().multiprocessors();
  const int64_t across = std::min(ceil_div(cols, per_block), resident);
  const int64_t down = std::min({rows, ceil_div(resident, across), int64_t{65535}});
  const dim3 grid(static_cast<unsigned>(across), static_cast<unsigned>(down));
  const auto run = [&](auto kernel) {
    kernel<<<grid, amax_threads, 0, stream.handle()>>>(data<T>(x), x.row_stride,
                                                       used_rows(x, args.end), x.cols(), is_flat,
                                                       data<uint32_t>(args.amax));
  };
  is_wide ? run(amax_kernel<T, Vec<T>::width>) : run(amax_kernel<T, 1>);
}

}  // namespace

void amax(Stream& stream, const AmaxArgs& args) {
  if (args.x.rows() == 0 || args.x.cols() == 0) return;
  device::CudaStream& s = device::cuda_stream(stream);
  with_real_type(args.x.dtype,
                 [&](auto* type) { launch_amax<std::remove_pointer_t<decltype(type)>>(s, args); });
  check_launch("amax");
}

}  // namespace trireme::kernels::cuda
