// SPDX-License-Identifier: Apache-2.0
// One thread for each row, which has three numbers from every rank.
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/table_ops.h"

namespace trireme::kernels::cuda {
namespace {

constexpr int row_merge_threads = 128;

__global__ void __launch_bounds__(row_merge_threads)
    cross_entropy_merge_kernel(const float* parts, int64_t count, float* stats,
                               int64_t stats_stride, int64_t rows) {
  const int64_t t = static_cast<int64_t>(blockIdx.x) * row_merge_threads + threadIdx.x;
  if (t >= rows) return;
  float highest = parts[t * 3];
  for (int64_t i = t + rows; i < count; i += rows) highest = fmaxf(highest, parts[i * 3]);
  double sum = 0, target = 0;
  for (int64_t i = t; i < count; i += rows) {
    sum += static_cast<double>(parts[i * 3 + 1]) * exp(static_cast<double>(parts[i * 3] - highest));
    target += parts[i * 3 + 2];
  }
  float* out = stats + t * stats_stride;
  out[0] = highest;
  out[1] = static_cast<float>(sum);
  out[2] = static_cast<float>(target);
}

}  // namespace

void cross_entropy_merge(Stream& stream, const CrossEntropyMergeArgs& args) {
  const int64_t rows = args.stats.rows();
  const auto blocks = static_cast<unsigned>(ceil_div(rows, row_merge_threads));
  cross_entropy_merge_kernel<<<blocks, row_merge_threads, 0,
                               device::cuda_stream(stream).handle()>>>(
      data<float>(args.parts), args.parts.rows(), data<float>(args.stats), args.stats.row_stride,
      rows);
  check_launch("cross_entropy_merge");
}

}  // namespace trireme::kernels::cuda
