// SPDX-License-Identifier: Apache-2.0
// Descriptions of matrices for the copy engine of Hopper, and whether a device and this build have
// what the kernels on it (gemm_fused.cuh, experts/grouped.cuh) need.
#pragma once

#include <cuda.h>

#include "device/cuda/cuda_device.h"

namespace trireme::kernels::cuda {

// What one copy moves.
struct Box {
  int rows, columns;
};

class TensorMaps {
 public:
  explicit TensorMaps(device::CudaDevice& device);

  bool is_supported() const { return encode_ != nullptr; }

  // Matrices of bf16, f32 or 8-bit codes whose rows are aligned to 16 bytes. Elements outside are read as zero.
  // REQUIRES: is_supported().
  CUtensorMap matrix(const device::ConstTensor& matrix, const Box& box) const;
  // Several matrices [number, rows, columns], where a box belongs to one; or one [rows, columns].
  CUtensorMap matrices(const device::ConstTensor& matrices, const Box& box) const;

 private:
  void* encode_ = nullptr;  // cuTensorMapEncodeTiled()
};

}  // namespace trireme::kernels::cuda
