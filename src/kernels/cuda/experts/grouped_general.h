// SPDX-License-Identifier: Apache-2.0
// Products of groups of rows for any type, alignment and size, on CUDA cores: for what the tensor
// cores' kernels do not support. REQUIRES: starts are multiples of 64.
#pragma once

#include "device/cuda/cuda_device.h"
#include "kernels/args.h"

namespace trireme::kernels::cuda {

void general_grouped_forward(device::CudaStream&, const GroupedForwardArgs&);
void general_grouped_backward_input(device::CudaStream&, const GroupedBackwardInputArgs&);
void general_grouped_swiglu_backward(device::CudaStream&, const GroupedSwigluBackwardArgs&);
void general_grouped_backward_weight(device::CudaStream&, const GroupedBackwardWeightArgs&);

}  // namespace trireme::kernels::cuda
