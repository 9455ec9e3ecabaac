// SPDX-License-Identifier: Apache-2.0
// Compiled instead of device/cuda in a build without CUDA.
#include "base/error.h"
#include "device/accelerator.h"
#include "device/stream_number.h"

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

bool is_gpu_stream(const Stream& /*stream*/) { return false; }
bool set_on_gpu(Stream& /*stream*/, int64_t* /*number*/, int64_t /*value*/) { return false; }
bool add_on_gpu(Stream& /*stream*/, int64_t* /*number*/) { return false; }

}  // namespace trireme::device
