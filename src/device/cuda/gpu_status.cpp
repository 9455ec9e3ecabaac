// SPDX-License-Identifier: Apache-2.0
#include <cublasLt.h>
#include <cudnn.h>

#include <algorithm>

#include "base/error.h"
#include "device/gpu/architectures.h"
#include "device/cuda/cuda_device.h"
#include "device/cuda/gpu_libraries.h"

namespace trireme::device {
namespace {

std::string version_text(int cuda_version) {
  return fmt::format("{}.{}", cuda_version / 1000, cuda_version % 1000 / 10);
}

GpuInfo describe(int index) {
  GpuInfo gpu;
  gpu.index = index;
  cudaDeviceProp properties{};
  cuda_check(cudaGetDeviceProperties(&properties, index), "reading the GPU's properties");
  gpu.name = properties.name;
  gpu.major = properties.major;
  gpu.minor = properties.minor;
  gpu.multiprocessors = properties.multiProcessorCount;
  if (!runs_on(TRIREME_CUDA_ARCHITECTURES, gpu.major, gpu.minor)) {
    gpu.problem = fmt::format(
        "compute capability {}.{}, but this build has code for {}; configure with "
        "-DCMAKE_CUDA_ARCHITECTURES={}{} and build again",
        gpu.major, gpu.minor, TRIREME_CUDA_ARCHITECTURES, gpu.major, gpu.minor);
    return gpu;
  }
  size_t free = 0, total = 0;
  const cudaError_t status = cudaSetDevice(index) == cudaSuccess ? cudaMemGetInfo(&free, &total)
                                                                 : cudaErrorDevicesUnavailable;
  if (status != cudaSuccess) {
    cudaGetLastError();
    gpu.problem = fmt::format(
        "it cannot be opened: {}; another program may use it exclusively or fill its memory "
        "(nvidia-smi shows which)",
        cudaGetErrorString(status));
    return gpu;
  }
  gpu.total_bytes = static_cast<int64_t>(total);
  gpu.free_bytes = static_cast<int64_t>(free);
  gpu.is_usable = true;
  return gpu;
}

// Sets the versions of the libraries, or the problem if one is missing. REQUIRES: a usable GPU.
void load_libraries(GpuStatus& status) {
  for (const base::LibraryReport& library : gpu_libraries()) {
    if (library.problem.empty()) {
      status.libraries += fmt::format("{}{} {}", status.libraries.empty() ? "" : ", ", library.name,
                                      library.version);
    } else if (status.problem.empty()) {
      const auto usable = std::find_if(status.gpus.begin(), status.gpus.end(),
                                       [](const GpuInfo& gpu) { return gpu.is_usable; });
      status.lacks_library = true;
      status.problem = fmt::format("there is a GPU ({}), but {}", usable->name, library.problem);
    }
  }
}

}  // namespace

std::vector<base::LibraryReport> gpu_libraries() {
  const auto version_of = [](const base::SharedLibrary& library, size_t (*version)()) {
    return library.problem().empty() ? static_cast<int>(version()) : 0;
  };
  return {base::report_of(cublaslt_library(), "cuBLASLt",
                          version_of(cublaslt_library(), cublasLtGetVersion)),
          base::report_of(cudnn_library(), "cuDNN", version_of(cudnn_library(), cudnnGetVersion))};
}

GpuStatus gpu_status() {
  GpuStatus status;
  status.in_build = true;
  status.built_for = TRIREME_CUDA_ARCHITECTURES;
  cudaRuntimeGetVersion(&status.runtime_version);
  cudaDriverGetVersion(&status.driver_version);
  int count = 0;
  const cudaError_t found = cudaGetDeviceCount(&count);
  cudaGetLastError();
  if (status.driver_version == 0) {
    status.problem = "no NVIDIA driver is loaded; install one, or use --device cpu";
  } else if (found == cudaErrorInsufficientDriver) {
    status.problem = fmt::format(
        "the driver supports CUDA {}, but this build uses CUDA {}; update the driver, or build "
        "with an older toolkit",
        version_text(status.driver_version), version_text(status.runtime_version));
  } else if (found == cudaErrorNoDevice || (found == cudaSuccess && count == 0)) {
    status.problem =
        "the driver sees no GPU (is CUDA_VISIBLE_DEVICES empty?); nvidia-smi lists all GPUs";
  } else if (found != cudaSuccess) {
    status.problem = fmt::format("CUDA does not start: {}", cudaGetErrorString(found));
  }
  if (!status.problem.empty()) return status;
  std::string first_problem;
  bool any = false;
  for (int i = 0; i < count; ++i) {
    status.gpus.push_back(describe(i));
    any = any || status.gpus.back().is_usable;
    if (first_problem.empty() && !status.gpus.back().is_usable) {
      first_problem =
          fmt::format("GPU {} ({}): {}", i, status.gpus.back().name, status.gpus.back().problem);
    }
  }
  if (any) {
    load_libraries(status);
  } else {
    status.problem = first_problem;
  }
  return status;
}

}  // namespace trireme::device
