// SPDX-License-Identifier: Apache-2.0
// What this machine and this build have in the way of GPUs, and how to get one as a Device. In a
// build without CUDA the same functions say so.
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
  std::string built_for;       // architectures, "90a"
  std::string problem;         // empty: at least one GPU can be used; else why not, and what to do
  bool lacks_library = false;  // a GPU is there and works: `problem` is a library that is missing
  int driver_version = 0, runtime_version = 0;  // as CUDA counts: 13000 is 13.0; 0: none
  // "cuBLASLt 13.1.0, cuDNN 9.14.0"; empty where they are not loaded, as without a GPU.
  std::string libraries;
  std::vector<GpuInfo> gpus;
};
GpuStatus gpu_status();

// What the kernels need beside the driver: loads each library, whether there is a GPU or not. Empty
// in a build without CUDA.
std::vector<base::LibraryReport> gpu_libraries();

struct GpuOptions {
  int index = 0;
  bool deterministic = true;  // false: also kernels whose order of sums varies from run to run
  // Where measured choices of matrix-product algorithms are kept; empty: they are not kept.
  std::filesystem::path cache_folder;
};
// Throws ConfigError with gpu_status()'s reason.
std::unique_ptr<Device> make_gpu(const kernels::Kernels& kernels, const GpuOptions& options);

// Bytes that the driver reports as used on the device of `device` by anyone (0 for other devices).
int64_t driver_used_bytes(const Device& device);

}  // namespace trireme::device
