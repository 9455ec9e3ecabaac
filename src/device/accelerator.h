// SPDX-License-Identifier: Apache-2.0
// The GPUs of this machine and the CUDA support of this build, and how to create a Device for a
// GPU. In a build without CUDA the same functions report that.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "base/system/shared_library.h"
#include "device/device.h"

namespace trireme::device {

struct GpuInfo {
  int index = 0;
  std::string name;          // "NVIDIA H200"
  int major = 0, minor = 0;  // compute capability
  int multiprocessors = 0;
  int64_t total_bytes = 0, free_bytes = 0;  // as the driver reports them now
  bool is_usable = false;
  std::string problem;  // why not, and what to do
};

struct GpuStatus {
  bool in_build = false;       // compiled with CUDA
  std::string built_for;       // "90a" (gpu/architectures.h)
  std::string problem;         // empty if a GPU can be used; otherwise why not, and what to do
  bool lacks_library = false;  // a GPU works, but a library is missing (`problem`)
  int driver_version = 0, runtime_version = 0;  // as CUDA counts: 13000 is 13.0; 0: none
  // "cuBLASLt 13.1.0, cuDNN 9.14.0"; empty if they are not loaded, as without a GPU.
  std::string libraries;
  std::vector<GpuInfo> gpus;
};
GpuStatus gpu_status();

// Returns the libraries that the kernels need besides the driver; loads each, also without a GPU.
// Empty in a build without CUDA.
std::vector<base::LibraryReport> gpu_libraries();

struct GpuOptions {
  int index = 0;
  bool deterministic = true;  // false: allows kernels whose order of sums varies from run to run
  // For measured choices of matrix-product algorithms; empty: they are not stored.
  std::filesystem::path cache_folder;
};
// Throws ConfigError with gpu_status()'s reason.
std::unique_ptr<Device> make_gpu(const kernels::Kernels& kernels, const GpuOptions& options);

// Returns the bytes that the driver reports as used on this GPU by all processes; 0 if `device` is
// not a GPU.
int64_t driver_used_bytes(const Device& device);

// Returns the PCI bus id of the GPU, "0000:65:00.0"; empty if `device` is not a GPU or it is not
// known.
std::string pci_bus_id(const Device& device);

}  // namespace trireme::device
