// SPDX-License-Identifier: Apache-2.0
// d[c] += sum over r of partials[r, c]. A block sums `columns` columns in `slices` slices: slice s
// takes rows s, s + slices, ..; the slices are added as a tree. 64 bytes of a row are two whole
// sectors, and there are D / 16 blocks of 32 rows a thread at 2,048 partial sums.
#include "kernels/cuda/norm/norm_partials.cuh"

#include "kernels/cuda/values.cuh"

namespace trireme::kernels::cuda {
namespace {

constexpr int columns = 16;
constexpr int slices = 64;

struct AddedPartials {
  const float* partials;
  int64_t rows, stride;
  int64_t width;  // of each destination
  OutRows d[3];   // by blockIdx.y
};

__global__ void __launch_bounds__(columns* slices) add_partials_kernel(AddedPartials a) {
  __shared__ double sums[slices][columns];
  const int column = threadIdx.x, slice = threadIdx.y;
  const int64_t c = static_cast<int64_t>(blockIdx.x) * columns + column;
  const OutRows d = a.d[blockIdx.y];
  if (d.data == nullptr) return;
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
    d.set(0, c, static_cast<float>(static_cast<double>(d.get(0, c)) + sums[0][column]));
  }
}

}  // namespace

void add_partials(cudaStream_t stream, const device::ConstTensor& partials, const PartialSums& d) {
  const int64_t width = d[0].elements();
  unsigned count = 0;  // up to the last one that is present
  for (unsigned i = 0; i < d.size(); ++i) {
    if (!d[i]) continue;
    TRIREME_CHECK(d[i].is_contiguous() && d[i].elements() == width, "sums of {} and {}",
                  d[0].shape.to_string(), d[i].shape.to_string());
    count = i + 1;
  }
  if (width == 0) return;
  const AddedPartials sums = {.partials = data<float>(partials),
                              .rows = partials.rows(),
                              .stride = partials.row_stride,
                              .width = width,
                              .d = {out_rows(d[0]), out_rows(d[1]), out_rows(d[2])}};
  const dim3 grid(grid_of(ceil_div(width, columns)), count);
  add_partials_kernel<<<grid, dim3(columns, slices), 0, stream>>>(sums);
  check_launch("add_partials");
}

}  // namespace trireme::kernels::cuda
