// SPDX-License-Identifier: Apache-2.0
// Compiled instead of kernels/cuda in builds without CUDA.
#include "kernels/table.h"
#include "kernels/warm_up.h"

namespace trireme::kernels {

const Kernels& cuda_kernels() {
  static constexpr Kernels none = {};
  return none;
}

WarmUp::WarmUp(int /*gpu*/) {}

}  // namespace trireme::kernels
