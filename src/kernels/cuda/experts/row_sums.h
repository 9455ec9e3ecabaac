// SPDX-License-Identifier: Apache-2.0
// Sums over the columns of rows, whose parts the blocks of a kernel compute: each tile of columns
// leaves one partial sum of a row in the stream's workspace, and a small kernel adds them in order.
#pragma once

#include <cstdint>

#include "device/cuda/cuda_device.h"
#include "device/tensor.h"

namespace trireme::kernels::cuda {

struct RowSums {
  float* partials = nullptr;  // [tiles, rows]
  int64_t tiles = 0, rows = 0;
};

// Divides the workspace: as many of `rows` rows as it has room for, at least `grain` and a multiple
// of it unless they are all.
RowSums row_sums(device::CudaStream& stream, int64_t rows, int64_t tiles, int64_t grain);

// d[first + i] = the sum of partials[:, i], for the rows below the last of `starts`. All f32.
void sum_rows(device::CudaStream& stream, const RowSums& sums, int64_t first,
              const device::ConstTensor& starts, const device::Tensor& d);

}  // namespace trireme::kernels::cuda
