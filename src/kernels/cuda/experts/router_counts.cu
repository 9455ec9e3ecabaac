// SPDX-License-Identifier: Apache-2.0
// Small counts of a router that one thread computes: overflow and the fullest block.
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/table_ops.h"
#include "kernels/router_math.h"
#include "kernels/step_state.h"

namespace trireme::kernels::cuda {
namespace {

__global__ void overflow_kernel(const float* overflow, StepSums* sums) {
  sums->overflow += static_cast<int64_t>(*overflow);
}

__global__ void fill_kernel(const int32_t* counts, int64_t experts, int64_t blocks, float* fill) {
  *fill = fullest_block(counts, experts, blocks, *fill);
}

}  // namespace

void router_overflow(Stream& stream, const RouterOverflowArgs& a) {
  const int64_t at = spec::RouterStats{a.experts}.overflow();
  overflow_kernel<<<1, 1, 0, device::cuda_stream(stream).handle()>>>(data<float>(a.stats) + at,
                                                                     data<StepSums>(a.sums));
  check_launch("router_overflow");
}

void router_fill(Stream& stream, const RouterFillArgs& a) {
  fill_kernel<<<1, 1, 0, device::cuda_stream(stream).handle()>>>(
      data<int32_t>(a.counts), a.counts.rows(), a.blocks, data<float>(a.fill));
  check_launch("router_fill");
}

}  // namespace trireme::kernels::cuda
