// SPDX-License-Identifier: Apache-2.0
// The history of largest magnitudes, as kernels/quantize_args.h states: one thread for each.
#include "kernels/amax_history.h"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/table_ops.h"
#include "kernels/step_state.h"

namespace trireme::kernels::cuda {
namespace {

__global__ void collect_kernel(const QuantizeCounts* cells, uint32_t* amax) {
  const unsigned i = threadIdx.x;
  amax[i] = larger_magnitude(amax[i], cells[i].amax_bits);
}

// `state` may be null.
__global__ void rotate_kernel(uint32_t* amax, uint32_t* history, int64_t length, uint32_t* largest,
                              const StepState* state) {
  const unsigned i = threadIdx.x;
  const bool is_skipped = state != nullptr && state->skip != 0;
  largest[i] = rotate_history(is_skipped ? 0 : amax[i], history + i * length, length);
  amax[i] = 0;
}

}  // namespace

void collect_amax(Stream& stream, const CollectAmaxArgs& a) {
  collect_kernel<<<1, static_cast<unsigned>(a.amax.rows()), 0,
                   device::cuda_stream(stream).handle()>>>(data<QuantizeCounts>(a.counts),
                                                           data<uint32_t>(a.amax));
  check_launch("collect_amax");
}

void rotate_amax(Stream& stream, const RotateAmaxArgs& a) {
  rotate_kernel<<<1, static_cast<unsigned>(a.amax.rows()), 0,
                  device::cuda_stream(stream).handle()>>>(
      data<uint32_t>(a.amax), data<uint32_t>(a.history), a.history.cols(),
      data<uint32_t>(a.largest), a.state ? data<StepState>(a.state) : nullptr);
  check_launch("rotate_amax");
}

}  // namespace trireme::kernels::cuda
