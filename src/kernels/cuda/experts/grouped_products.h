// SPDX-License-Identifier: Apache-2.0
// Products of groups of rows on the tensor cores of Hopper (grouped.cuh) as host functions, which
// also decide whether a device supports them.
#pragma once

#include "device/cuda/cuda_device.h"
#include "kernels/args.h"
#include "kernels/cuda/gemm_fused/tensor_maps.h"

namespace trireme::kernels::cuda {

class GroupedProducts {
 public:
  explicit GroupedProducts(device::CudaDevice& device);

  // Each queues the complete op, or queues nothing and returns false: if the device is no Hopper,
  // or an operand is not bf16 with rows that are aligned to 16 bytes; gradients of weights may also
  // be fp32. That depends on the arguments only.
  bool forward(device::CudaStream&, const GroupedForwardArgs&) const;
  bool swiglu_forward(device::CudaStream&, const GroupedSwigluForwardArgs&) const;
  bool backward_input(device::CudaStream&, const GroupedBackwardInputArgs&) const;
  bool swiglu_backward(device::CudaStream&, const GroupedSwigluBackwardArgs&) const;
  bool backward_weight(device::CudaStream&, const GroupedBackwardWeightArgs&) const;

 private:
  TensorMaps maps_;
  int clusters_ = 0;  // that run concurrently; 0: not supported
};

}  // namespace trireme::kernels::cuda
