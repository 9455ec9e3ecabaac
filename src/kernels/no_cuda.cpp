// SPDX-License-Identifier: Apache-2.0
// Compiled instead of kernels/cuda where CUDA is missing.
#include "kernels/table.h"

namespace trireme::kernels {

const Kernels& cuda_kernels() {
  static constexpr Kernels none = {};
  return none;
}

}  // namespace trireme::kernels
