// SPDX-License-Identifier: Apache-2.0
#include "train/setup/spare/spare_warm_up.h"

#include <chrono>
#include <filesystem>
#include <system_error>

#include "base/log.h"
#include "base/system/start_thread.h"
#include "comm/nccl.h"
#include "device/accelerator.h"
#include "kernels/warm_up.h"

namespace trireme::train {
namespace {

// Without opening a GPU. Libraries of CUDA take a hundred megabytes where no GPU uses them.
bool has_gpu_driver() {
  std::error_code ignored;
  return std::filesystem::exists("/dev/nvidiactl", ignored) ||
         std::filesystem::exists("/dev/dxg", ignored);
}

}  // namespace

SpareWarmUp::SpareWarmUp(const config::System& system, const Options& options) {
  if (system.device == "cpu" || !has_gpu_driver()) return;
  thread_ = base::start_thread("that makes a spare ready",
                               [this, system, options] { warm_up(system, options); });
}

SpareWarmUp::~SpareWarmUp() {
  {
    const std::scoped_lock lock(mutex_);
    is_over_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void SpareWarmUp::warm_up(const config::System& system, const Options& options) {
  static_cast<void>(device::gpu_libraries());
  static_cast<void>(comm::nccl_libraries());
  {
    std::unique_lock lock(mutex_);
    const std::chrono::duration<double> span(options.wait_seconds);
    if (changed_.wait_for(lock, span, [this] { return is_over_; })) return;
  }
  const device::GpuStatus status = device::gpu_status();
  const auto gpu = static_cast<size_t>(system.gpu);
  if (gpu >= status.gpus.size() || !status.gpus[gpu].is_usable) return;
  const kernels::WarmUp tables(static_cast<int>(system.gpu));
  base::log_info("this spare is warm: {}", status.gpus[gpu].name);
}

}  // namespace trireme::train
