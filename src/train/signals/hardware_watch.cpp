// SPDX-License-Identifier: Apache-2.0
#include "train/signals/hardware_watch.h"

#include <fmt/format.h>

#include <chrono>
#include <map>

#include "base/error.h"
#include "base/system/start_thread.h"
#include "device/accelerator.h"

namespace trireme::train {

HardwareWatch::HardwareWatch(const Options& options)
    : nvml_(options.library), problem_(nvml_.problem()) {
  if (!problem_.empty()) return;
  const int devices = nvml_.devices();
  if (!options.bus_id.empty()) {
    gpu_ = nvml_.at_bus(options.bus_id, options.counters);
  } else if (devices > 0) {
    gpu_ = nvml_.at_index(options.index % devices, options.counters);
  }
  if (!gpu_) {
    problem_ = options.library + " does not know the device of this rank";
    return;
  }
  latest_ = gpu_->read();
  try {
    thread_ = base::start_thread("of hardware counters",
                                 [this, seconds = options.seconds] { watch(seconds); });
  } catch (const base::Error& error) {  // the run does not need it
    problem_ = error.what();
  }
}

HardwareWatch::~HardwareWatch() {
  if (!thread_.joinable()) return;
  {
    const std::scoped_lock lock(mutex_);
    is_stopping_ = true;
  }
  stops_.notify_all();
  thread_.join();
}

device::GpuCounters HardwareWatch::latest() const {
  const std::scoped_lock lock(mutex_);
  return latest_;
}

void HardwareWatch::watch(double seconds) {
  std::unique_lock lock(mutex_);
  const auto interval = std::chrono::duration<double>(seconds);
  while (!stops_.wait_for(lock, interval, [this] { return is_stopping_; })) {
    lock.unlock();
    const device::GpuCounters counters = gpu_->read();
    lock.lock();
    latest_ = counters;
  }
}

std::shared_ptr<HardwareWatch> shared_hardware_watch(const HardwareWatch::Options& options) {
  static std::mutex mutex;
  static std::map<std::string, std::weak_ptr<HardwareWatch>> watches;  // guarded by `mutex`
  const std::string key =
      fmt::format("{} {} {} {}", options.library, static_cast<int>(options.counters),
                  options.bus_id, options.bus_id.empty() ? options.index : -1);
  const std::scoped_lock lock(mutex);
  std::shared_ptr<HardwareWatch> watch = watches[key].lock();
  if (watch == nullptr) watches[key] = watch = std::make_shared<HardwareWatch>(options);
  return watch;
}

std::shared_ptr<HardwareWatch> make_hardware_watch(const std::string& asked,
                                                   const Platform& platform,
                                                   const RankStart& start) {
  if (asked == "off" || (asked == "auto" && !platform.is_gpu())) return nullptr;
  return shared_hardware_watch({.bus_id = device::pci_bus_id(*platform.device),
                                .index = start.local_rank,
                                .counters = asked == "on"
                                                ? device::Nvml::Counters::status_and_activity
                                                : device::Nvml::Counters::status});
}

}  // namespace trireme::train
