// SPDX-License-Identifier: Apache-2.0
// The sum over blocks of rows that ends every weight gradient of a norm.
#pragma once

#include "kernels/cuda/launch.cuh"

namespace trireme::kernels::cuda {

// d[c] += sum over rows of partials[row, c] for d0, and of partials[row, d0.elements() + c] for d1
// (optional, of the same size). fp64, in an order that the number of rows alone decides.
void add_partials(cudaStream_t stream, const device::ConstTensor& partials,
                  const device::Tensor& d0, const device::Tensor& d1);

}  // namespace trireme::kernels::cuda
