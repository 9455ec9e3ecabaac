// SPDX-License-Identifier: Apache-2.0
// The gradients of act = row_weight silu(gate) up after a product in 8 bits.
#pragma once

#include "device/cuda/cuda_device.h"
#include "kernels/args.h"

namespace trireme::kernels::cuda {

// Everything but the product: args.dact is the gradient of act. REQUIRES: rows.
void grouped_swiglu_gradient(device::CudaStream& stream, const GroupedSwigluBackwardArgs& args);

}  // namespace trireme::kernels::cuda
