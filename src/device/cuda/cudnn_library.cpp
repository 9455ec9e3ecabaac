// SPDX-License-Identifier: Apache-2.0
// The functions of cuDNN that Trireme calls, forwarded to the loaded library.
#include <cudnn.h>
#include <fmt/format.h>

#include "device/cuda/gpu_libraries.h"

namespace trireme::device {

const base::SharedLibrary& cudnn_library() {
  // cuDNN also needs cuBLASLt and uses the one that is loaded.
  static_cast<void>(cublaslt_library());
  static const base::SharedLibrary library({.name = fmt::format("cuDNN {}", CUDNN_MAJOR),
                                            .file = fmt::format("libcudnn.so.{}", CUDNN_MAJOR),
                                            .folders = cuda_folders()});
  return library;
}

}  // namespace trireme::device

using trireme::device::cudnn_library;

extern "C" {

cudnnStatus_t cudnnCreate(cudnnHandle_t* handle) {
  static const auto real = cudnn_library().function<decltype(cudnnCreate)>("cudnnCreate");
  return real(handle);
}

cudnnStatus_t cudnnDestroy(cudnnHandle_t handle) {
  static const auto real = cudnn_library().function<decltype(cudnnDestroy)>("cudnnDestroy");
  return real(handle);
}

cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, cudaStream_t stream) {
  static const auto real = cudnn_library().function<decltype(cudnnSetStream)>("cudnnSetStream");
  return real(handle, stream);
}

size_t cudnnGetVersion() {
  static const auto real = cudnn_library().function<decltype(cudnnGetVersion)>("cudnnGetVersion");
  return real();
}

const char* cudnnGetErrorString(cudnnStatus_t status) {
  static const auto real =
      cudnn_library().function<decltype(cudnnGetErrorString)>("cudnnGetErrorString");
  return real(status);
}

void cudnnGetLastErrorString(char* message, size_t max_bytes) {
  static const auto real =
      cudnn_library().function<decltype(cudnnGetLastErrorString)>("cudnnGetLastErrorString");
  real(message, max_bytes);
}

// ---- graphs

cudnnStatus_t cudnnBackendCreateDescriptor(cudnnBackendDescriptorType_t type,
                                           cudnnBackendDescriptor_t* descriptor) {
  static const auto real = cudnn_library().function<decltype(cudnnBackendCreateDescriptor)>(
      "cudnnBackendCreateDescriptor");
  return real(type, descriptor);
}

cudnnStatus_t cudnnBackendDestroyDescriptor(cudnnBackendDescriptor_t descriptor) {
  static const auto real = cudnn_library().function<decltype(cudnnBackendDestroyDescriptor)>(
      "cudnnBackendDestroyDescriptor");
  return real(descriptor);
}

cudnnStatus_t cudnnBackendSetAttribute(cudnnBackendDescriptor_t descriptor,
                                       cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, int64_t count,
                                       const void* elements) {
  static const auto real =
      cudnn_library().function<decltype(cudnnBackendSetAttribute)>("cudnnBackendSetAttribute");
  return real(descriptor, name, type, count, elements);
}

cudnnStatus_t cudnnBackendGetAttribute(cudnnBackendDescriptor_t const descriptor,
                                       cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, int64_t wanted,
                                       int64_t* count, void* elements) {
  static const auto real =
      cudnn_library().function<decltype(cudnnBackendGetAttribute)>("cudnnBackendGetAttribute");
  return real(descriptor, name, type, wanted, count, elements);
}

cudnnStatus_t cudnnBackendFinalize(cudnnBackendDescriptor_t descriptor) {
  static const auto real =
      cudnn_library().function<decltype(cudnnBackendFinalize)>("cudnnBackendFinalize");
  return real(descriptor);
}

cudnnStatus_t cudnnBackendExecute(cudnnHandle_t handle, cudnnBackendDescriptor_t plan,
                                  cudnnBackendDescriptor_t variant_pack) {
  static const auto real =
      cudnn_library().function<decltype(cudnnBackendExecute)>("cudnnBackendExecute");
  return real(handle, plan, variant_pack);
}

}  // extern "C"
