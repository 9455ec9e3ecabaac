// SPDX-License-Identifier: Apache-2.0
// Products of groups of rows in 8 bits on the tensor cores of Hopper (grouped_codes.cuh) as host
// functions, which also decide whether a device supports them.
#pragma once

#include "device/cuda/cuda_device.h"
#include "kernels/args.h"
#include "kernels/cuda/gemm_fused/tensor_maps.h"

namespace trireme::kernels::cuda {

class GroupedCodes {
 public:
  explicit GroupedCodes(device::CudaDevice& device);

  // Each queues the complete op, or queues nothing and returns false: if the device is no Hopper,
  // the second operand is not e4m3, rows are not aligned to 16 bytes, or results of rows are not
  // bf16. That depends on the arguments only. An input gradient is the product of dy and the
  // transposed weights.
  bool forward(device::CudaStream&, const GroupedForwardArgs&) const;
  bool backward_weight(device::CudaStream&, const GroupedBackwardWeightArgs&) const;
  // value = a b^T + beta d of one matrix, whose scales are row_128 for both operands, without the
  // epilogue: what the library is slow at.
  bool multiply_rows(device::CudaStream&, const GemmArgs&) const;

 private:
  TensorMaps maps_;
  int clusters_ = 0;  // that run concurrently; 0: not supported
};

}  // namespace trireme::kernels::cuda
