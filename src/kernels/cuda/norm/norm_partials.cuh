// SPDX-License-Identifier: Apache-2.0
// The sum over blocks of rows, the last step of every weight gradient of a norm.
#pragma once

#include <array>

#include "kernels/cuda/launch.cuh"

namespace trireme::kernels::cuda {

// d[i][c] += sum over rows of partials[row, i * width + c], where width = d[0].elements(). The
// others are optional and of the same size. fp64, in an order that depends on the number of rows
// only.
using PartialSums = std::array<device::Tensor, 3>;
void add_partials(cudaStream_t stream, const device::ConstTensor& partials, const PartialSums& d);

}  // namespace trireme::kernels::cuda
