// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/experts/row_sums.h"

#include <algorithm>

#include "kernels/cuda/values.cuh"

namespace trireme::kernels::cuda {
namespace {

constexpr int threads_of_sum = 128;

__global__ void __launch_bounds__(threads_of_sum)
    sum_rows_kernel(RowSums sums, int64_t first, int64_t end, const int32_t* last_start, float* d) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * threads_of_sum + threadIdx.x;
  if (i >= sums.rows || first + i >= end || first + i >= *last_start) return;
  float sum = 0;
#pragma unroll 8
  for (int64_t tile = 0; tile < sums.tiles; ++tile) sum += sums.partials[tile * sums.rows + i];
  d[first + i] = sum;
}

}  // namespace

RowSums row_sums(device::CudaStream& stream, int64_t rows, int64_t tiles, int64_t grain) {
  const int64_t room = stream.workspace().bytes() / (4 * std::max<int64_t>(tiles, 1));
  const int64_t most = room >= rows ? rows : room / grain * grain;
  TRIREME_CHECK(most > 0 || rows == 0,
                "a workspace of {} bytes has no room for the partial sums of {} rows",
                stream.workspace().bytes(), grain);
  return {reinterpret_cast<float*>(stream.workspace().data), tiles, most};
}

void sum_rows(device::CudaStream& stream, const RowSums& sums, int64_t first,
              const device::ConstTensor& starts, const device::Tensor& d) {
  const unsigned blocks = grid_of(ceil_div(sums.rows, threads_of_sum));
  sum_rows_kernel<<<blocks, threads_of_sum, 0, stream.handle()>>>(
      sums, first, d.elements(), data<int32_t>(starts) + starts.elements() - 1, data<float>(d));
  check_launch("sum_rows");
}

}  // namespace trireme::kernels::cuda
