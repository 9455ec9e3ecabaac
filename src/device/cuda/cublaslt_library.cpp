// SPDX-License-Identifier: Apache-2.0
// The functions of cuBLASLt that Trireme calls, forwarded to the loaded library.
#include <cublasLt.h>
#include <fmt/format.h>

#include "device/cuda/gpu_libraries.h"

namespace trireme::device {

const base::SharedLibrary& cublaslt_library() {
  static const base::SharedLibrary library(
      {.name = fmt::format("cuBLAS of CUDA {}", CUBLAS_VER_MAJOR),
       .file = fmt::format("libcublasLt.so.{}", CUBLAS_VER_MAJOR),
       .folders = cuda_folders()});
  return library;
}

}  // namespace trireme::device

using trireme::device::cublaslt_library;

extern "C" {

cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
  static const auto real = cublaslt_library().function<decltype(cublasLtCreate)>("cublasLtCreate");
  return real(handle);
}

cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
  static const auto real =
      cublaslt_library().function<decltype(cublasLtDestroy)>("cublasLtDestroy");
  return real(handle);
}

const char* cublasLtGetStatusString(cublasStatus_t status) {
  static const auto real =
      cublaslt_library().function<decltype(cublasLtGetStatusString)>("cublasLtGetStatusString");
  return real(status);
}

size_t cublasLtGetVersion() {
  static const auto real =
      cublaslt_library().function<decltype(cublasLtGetVersion)>("cublasLtGetVersion");
  return real();
}

// ---- matrix products

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t operation,
                              const void* alpha, const void* a, cublasLtMatrixLayout_t a_layout,
                              const void* b, cublasLtMatrixLayout_t b_layout, const void* beta,
                              const void* c, cublasLtMatrixLayout_t c_layout, void* d,
                              cublasLtMatrixLayout_t d_layout,
                              const cublasLtMatmulAlgo_t* algorithm, void* workspace,
                              size_t workspace_bytes, cudaStream_t stream) {
  static const auto real = cublaslt_library().function<decltype(cublasLtMatmul)>("cublasLtMatmul");
  return real(handle, operation, alpha, a, a_layout, b, b_layout, beta, c, c_layout, d, d_layout,
              algorithm, workspace, workspace_bytes, stream);
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle,
                                              cublasLtMatmulDesc_t operation,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int wanted,
                                              cublasLtMatmulHeuristicResult_t results[],
                                              int* found) {
  static const auto real = cublaslt_library().function<decltype(cublasLtMatmulAlgoGetHeuristic)>(
      "cublasLtMatmulAlgoGetHeuristic");
  return real(handle, operation, a, b, c, d, preference, wanted, results, found);
}

cublasStatus_t cublasLtMatmulAlgoCheck(cublasLtHandle_t handle, cublasLtMatmulDesc_t operation,
                                       cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                       cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                       const cublasLtMatmulAlgo_t* algorithm,
                                       cublasLtMatmulHeuristicResult_t* result) {
  static const auto real =
      cublaslt_library().function<decltype(cublasLtMatmulAlgoCheck)>("cublasLtMatmulAlgoCheck");
  return real(handle, operation, a, b, c, d, algorithm, result);
}

// ---- descriptors; the header's inline functions without _internal call these

cublasStatus_t cublasLtMatrixLayoutInit_internal(cublasLtMatrixLayout_t layout, size_t size,
                                                 cudaDataType type, uint64_t rows, uint64_t cols,
                                                 int64_t leading) {
  static const auto real = cublaslt_library().function<decltype(cublasLtMatrixLayoutInit_internal)>(
      "cublasLtMatrixLayoutInit_internal");
  return real(layout, size, type, rows, cols, leading);
}

cublasStatus_t cublasLtMatmulDescInit_internal(cublasLtMatmulDesc_t operation, size_t size,
                                               cublasComputeType_t compute, cudaDataType_t scale) {
  static const auto real = cublaslt_library().function<decltype(cublasLtMatmulDescInit_internal)>(
      "cublasLtMatmulDescInit_internal");
  return real(operation, size, compute, scale);
}

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t operation,
                                              cublasLtMatmulDescAttributes_t attribute,
                                              const void* value, size_t bytes) {
  static const auto real = cublaslt_library().function<decltype(cublasLtMatmulDescSetAttribute)>(
      "cublasLtMatmulDescSetAttribute");
  return real(operation, attribute, value, bytes);
}

cublasStatus_t cublasLtMatmulPreferenceInit_internal(cublasLtMatmulPreference_t preference,
                                                     size_t size) {
  static const auto real =
      cublaslt_library().function<decltype(cublasLtMatmulPreferenceInit_internal)>(
          "cublasLtMatmulPreferenceInit_internal");
  return real(preference, size);
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t attribute,
                                                    const void* value, size_t bytes) {
  static const auto real =
      cublaslt_library().function<decltype(cublasLtMatmulPreferenceSetAttribute)>(
          "cublasLtMatmulPreferenceSetAttribute");
  return real(preference, attribute, value, bytes);
}

}  // extern "C"
