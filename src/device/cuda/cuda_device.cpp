// SPDX-License-Identifier: Apache-2.0
#include "device/cuda/cuda_device.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <utility>

#include "base/check.h"
#include "base/error.h"

namespace trireme::device {

void cuda_check(cudaError_t status, const char* what) {
  if (status == cudaSuccess) return;
  const std::string text =
      fmt::format("{}: {} ({})", what, cudaGetErrorString(status), cudaGetErrorName(status));
  if (status == cudaErrorMemoryAllocation) throw base::OutOfMemory(text);
  throw base::DeviceError(text);
}

CudaDevice::CudaDevice(const kernels::Kernels& kernels, const GpuOptions& options)
    : Device("cuda", kernels, std::numeric_limits<int64_t>::max()), options_(options) {
  CudaDevice::use_on_this_thread();
  cudaDeviceProp properties{};
  cuda_check(cudaGetDeviceProperties(&properties, options.index), "reading the GPU's properties");
  gpu_name_ = properties.name;
  multiprocessors_ = properties.multiProcessorCount;
}

void CudaDevice::use_on_this_thread() {
  cuda_check(cudaSetDevice(options_.index), "selecting the GPU");
}

CudaDevice::~CudaDevice() { kernel_state_.reset(); }

std::unique_ptr<Stream> CudaDevice::make_stream(std::string name) {
  return std::make_unique<CudaStream>(*this, std::move(name));
}

HostBuffer::Memory CudaDevice::allocate_host(int64_t bytes) {
  void* data = nullptr;
  cuda_check(cudaHostAlloc(&data, static_cast<size_t>(std::max<int64_t>(bytes, 1)),
                           cudaHostAllocPortable | cudaHostAllocMapped),
             "page-locking host memory");
  std::memset(data, 0, static_cast<size_t>(bytes));
  return {static_cast<std::byte*>(data), [](std::byte* p) { cudaFreeHost(p); }};
}

void CudaDevice::register_host(std::span<std::byte> memory) {
  const cudaError_t status =
      cudaHostRegister(memory.data(), memory.size(), cudaHostRegisterPortable);
  if (status != cudaSuccess) cudaGetLastError();  // the next launch check must not find it
  cuda_check(status, "page-locking host memory");
}

void CudaDevice::unregister_host(std::byte* memory) noexcept {
  if (cudaHostUnregister(memory) != cudaSuccess) cudaGetLastError();
}

int64_t CudaDevice::available_bytes() {
  size_t free = 0, total = 0;
  cuda_check(cudaMemGetInfo(&free, &total), "reading the free memory");
  return static_cast<int64_t>(free);
}

void CudaDevice::set_check(std::function<void()> check) {
  const std::scoped_lock lock(check_mutex_);
  check_ = std::move(check);
}

void CudaDevice::run_check() {
  const std::scoped_lock lock(check_mutex_);
  if (check_) check_();
}

void CudaDevice::destroy_graphs() noexcept {
  const std::scoped_lock lock(graphs_mutex_);
  for (const auto& one : graphs_) {
    if (const auto graph = one.lock()) graph->destroy();
  }
  graphs_.clear();
}

std::byte* CudaDevice::allocate(int64_t bytes) {
  void* data = nullptr;
  const cudaError_t status = cudaMalloc(&data, static_cast<size_t>(bytes));
  if (status == cudaErrorMemoryAllocation) {
    cudaGetLastError();  // the error is handled here, not by the next launch check
    throw base::OutOfMemory(fmt::format(
        "out of memory on the GPU: needs {} bytes, {} are available", bytes, available_bytes()));
  }
  cuda_check(status, "allocating GPU memory");
  return static_cast<std::byte*>(data);
}

void CudaDevice::release(std::byte* data, int64_t /*bytes*/) noexcept { cudaFree(data); }

CudaStream& cuda_stream(Stream& stream) {
  auto* found = dynamic_cast<CudaStream*>(&stream);
  TRIREME_CHECK(found != nullptr, "stream '{}' is not on a GPU", stream.name());
  return *found;
}

std::unique_ptr<Device> make_gpu(const kernels::Kernels& kernels, const GpuOptions& options) {
  const GpuStatus status = gpu_status();
  if (!status.problem.empty()) throw base::ConfigError("device 'cuda': " + status.problem);
  const auto count = static_cast<int>(status.gpus.size());
  if (options.index < 0 || options.index >= count) {
    throw base::ConfigError(
        fmt::format("GPU {}: this machine has {} GPUs, numbered from 0", options.index, count));
  }
  const GpuInfo& gpu = status.gpus[static_cast<size_t>(options.index)];
  if (!gpu.is_usable) {
    throw base::ConfigError(fmt::format("GPU {} ({}): {}", gpu.index, gpu.name, gpu.problem));
  }
  return std::make_unique<CudaDevice>(kernels, options);
}

int64_t driver_used_bytes(const Device& device) {
  if (dynamic_cast<const CudaDevice*>(&device) == nullptr) return 0;
  size_t free = 0, total = 0;
  cuda_check(cudaMemGetInfo(&free, &total), "reading the free memory");
  return static_cast<int64_t>(total - free);
}

std::string pci_bus_id(const Device& device) {
  const auto* gpu = dynamic_cast<const CudaDevice*>(&device);
  std::array<char, 32> id{};
  if (gpu == nullptr || cudaDeviceGetPCIBusId(id.data(), static_cast<int>(id.size()),
                                              gpu->options().index) != cudaSuccess) {
    return "";
  }
  return id.data();
}

}  // namespace trireme::device
