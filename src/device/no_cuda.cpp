// SPDX-License-Identifier: Apache-2.0
// Compiled instead of device/cuda in a build without CUDA.
#include "base/error.h"
#include "device/accelerator.h"

namespace trireme::device {

GpuStatus gpu_status() {
  GpuStatus status;
  status.problem =
      "this build has no CUDA: install the CUDA toolkit with cuDNN 9, put nvcc on the PATH and "
      "build again";
  return status;
}

std::vector<base::LibraryReport> gpu_libraries() { return {}; }

std::unique_ptr<Device> make_gpu(const kernels::Kernels& /*kernels*/,
                                 const GpuOptions& /*options*/) {
  throw base::ConfigError("device 'cuda': " + gpu_status().problem);
}

int64_t driver_used_bytes(const Device& /*device*/) { return 0; }

std::string pci_bus_id(const Device& /*device*/) { return ""; }

}  // namespace trireme::device
