// SPDX-License-Identifier: Apache-2.0
#include "device/stream_number.h"

#include <cuda.h>
#include <cudaTypedefs.h>

#include "base/error.h"
#include "device/cuda/cuda_device.h"

namespace trireme::device {
namespace {

using WriteValue = PFN_cuStreamWriteValue64_v11070;

// A kernel would need room on a multiprocessor, for which it may wait behind others. The driver's
// library is not linked, so that the program starts without it.
WriteValue driver_write() {
  constexpr unsigned int version = 11070;
  void* found = nullptr;
  cudaDriverEntryPointQueryResult result = cudaDriverEntryPointSymbolNotFound;
  cuda_check(cudaGetDriverEntryPointByVersion("cuStreamWriteValue64", &found, version,
                                              cudaEnableDefault, &result),
             "looking for cuStreamWriteValue64");
  if (result != cudaDriverEntryPointSuccess || found == nullptr) {
    throw base::DeviceError("the driver has no cuStreamWriteValue64: install a newer one");
  }
  return reinterpret_cast<WriteValue>(found);
}

}  // namespace

bool is_gpu_stream(const Stream& stream) {
  return dynamic_cast<const CudaStream*>(&stream) != nullptr;
}

bool set_on_gpu(Stream& stream, int64_t* number, int64_t value) {
  auto* queue = dynamic_cast<CudaStream*>(&stream);
  if (queue == nullptr) return false;
  static const WriteValue write = driver_write();
  // Page-locked memory has the same address on the GPU.
  const CUresult result = write(queue->handle(), reinterpret_cast<CUdeviceptr>(number),
                                static_cast<cuuint64_t>(value), CU_STREAM_WRITE_VALUE_DEFAULT);
  if (result != CUDA_SUCCESS) {
    throw base::DeviceError(
        fmt::format("setting a number in the order of stream '{}': CUDA error {}", stream.name(),
                    static_cast<int>(result)));
  }
  return true;
}

bool add_on_gpu(Stream& stream, int64_t* number) {
  auto* queue = dynamic_cast<CudaStream*>(&stream);
  if (queue == nullptr) return false;
  queue->tick(number);
  return true;
}

}  // namespace trireme::device
