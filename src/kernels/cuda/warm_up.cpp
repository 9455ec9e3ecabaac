// SPDX-License-Identifier: Apache-2.0
#include "kernels/warm_up.h"

#include <cublasLt.h>
#include <cuda_runtime.h>

#include <array>
#include <atomic>

namespace trireme::kernels {
namespace {

// Asks for algorithms of a product of square bf16 matrices.
void propose_algorithms(cublasLtHandle_t handle) {
  constexpr uint64_t size = 4096;
  cublasLtMatmulDescOpaque_t operation;
  cublasLtMatrixLayoutOpaque_t matrix;
  cublasLtMatmulPreferenceOpaque_t preference;
  if (cublasLtMatmulDescInit(&operation, CUBLAS_COMPUTE_32F, CUDA_R_32F) != CUBLAS_STATUS_SUCCESS ||
      cublasLtMatrixLayoutInit(&matrix, CUDA_R_16BF, size, size, size) != CUBLAS_STATUS_SUCCESS ||
      cublasLtMatmulPreferenceInit(&preference) != CUBLAS_STATUS_SUCCESS) {
    return;
  }
  std::array<cublasLtMatmulHeuristicResult_t, 8> results;
  int count = 0;
  static_cast<void>(cublasLtMatmulAlgoGetHeuristic(
      handle, &operation, &matrix, &matrix, &matrix, &matrix, &preference,
      static_cast<int>(results.size()), results.data(), &count));
}

void warm_up(int gpu) {
  cublasLtHandle_t handle = nullptr;
  if (cudaSetDevice(gpu) != cudaSuccess || cublasLtCreate(&handle) != CUBLAS_STATUS_SUCCESS) return;
  propose_algorithms(handle);
  static_cast<void>(cublasLtDestroy(handle));
}

}  // namespace

WarmUp::WarmUp(int gpu) {
  static std::atomic<bool> is_started = false;
  if (!is_started.exchange(true)) thread_ = std::jthread(warm_up, gpu);
}

}  // namespace trireme::kernels
