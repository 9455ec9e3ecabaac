// SPDX-License-Identifier: Apache-2.0
#include "device/cuda/cuda_device.h"

namespace trireme::device {
namespace {

__global__ void tick_kernel(volatile int64_t* number) { *number = *number + 1; }

}  // namespace

void CudaStream::tick(int64_t* number) {
  tick_kernel<<<1, 1, 0, handle_>>>(number);
  cuda_check(cudaGetLastError(), "counting in the order of a stream");
}

}  // namespace trireme::device
