// SPDX-License-Identifier: Apache-2.0
// d[c] += sum over r of partials[r, c]. A block sums `columns` columns in `slices` slices: slice s
// takes rows s, s + slices, ..; the slices are added as a tree. 64 bytes of a row are two whole
// sectors, and there are D / 16 blocks of 32 rows a thread at 2,048 partial sums.
#include "kernels/cuda/norm_partials.cuh"

#include "kernels/cuda/values.cuh"

namespace trireme::kernels::cuda {
namespace {

constexpr int columns = 16;
constexpr int slices = 64;

struct Sums {
  const float* partials;
  int64_t rows, stride;
  int64_t width;   // of each destination
  OutRows d0, d1;  // by blockIdx.y
};

__global__ void __launch_bounds__(columns* slices) add_partials_kernel(Sums a) {
  __shared__ double sums[slices][columns];
  const int column = threadIdx.x, slice = threadIdx.y;
  const int64_t c = static_cast<int64_t>(blockIdx.x) * columns + column;
  double sum = 0;
  if (c < a.width) {
    const float* p = a.partials + blockIdx.y * a.width + c;
#pragma unroll 8
    for (int64_t r = slice; r < a.rows; r += slices) sum += static_cast<double>(p[r * a.stride]);
  }
  sums[slice][column] = sum;
  for (int half = slices / 2; half > 0; half /= 2) {
    __syncthreads();
    if (slice < half) sums[slice][column] += sums[slice + half][column];
  }
  if (slice == 0 && c < a.width) {
    const OutRows d = blockIdx.y == 0 ? a.d0 : a.d1;
    d.set(0, c, static_cast<float>(static_cast<double>(d.get(0, c)) + sums[0][column]));
  }
}

}  // namespace

void add_partials(cudaStream_t stream, const device::ConstTensor& partials,
                  const device::Tensor& d0, const device::Tensor& d1) {
  const int64_t width = d0.elements();
  TRIREME_CHECK(d0.is_contiguous() && (!d1 || (d1.is_contiguous() && d1.elements() == width)),
                "sums of {} and {}", d0.shape.to_string(), d1.shape.to_string());
  if (width == 0) return;
  const Sums sums = {.partials = data<float>(partials),
                     .rows = partials.rows(),
                     .stride = partials.row_stride,
                     .width = width,
                     .d0 = out_rows(d0),
                     .d1 = out_rows(d1)};
  const dim3 grid(grid_of(ceil_div(width, columns)), d1 ? 2 : 1);
  add_partials_kernel<<<grid, dim3(columns, slices), 0, stream>>>(sums);
  check_launch("add_partials");
}

}  // namespace trireme::kernels::cuda
