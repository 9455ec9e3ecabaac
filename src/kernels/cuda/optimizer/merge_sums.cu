// SPDX-License-Identifier: Apache-2.0
// One thread adds a few dozen numbers of every rank in order; nothing else could run meanwhile.
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/table_ops.h"
#include "kernels/step_control.h"

namespace trireme::kernels::cuda {
namespace {

__global__ void merge_sums_kernel(const StepSums* parts, int64_t count, int64_t copies,
                                  int64_t slices, StepSums* sums) {
  *sums = merged(parts, count, copies, slices);
}

}  // namespace

void merge_sums(Stream& stream, const MergeSumsArgs& args) {
  merge_sums_kernel<<<1, 1, 0, device::cuda_stream(stream).handle()>>>(
      data<StepSums>(args.parts), args.parts.rows(), args.copies, args.slices,
      data<StepSums>(args.sums));
  check_launch("merge_sums");
}

}  // namespace trireme::kernels::cuda
