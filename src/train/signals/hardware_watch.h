// SPDX-License-Identifier: Apache-2.0
// HardwareWatch: a thread that reads the hardware counters of this rank's device about once a
// second, never within a step. A device or library that does not answer gives unknown counters.
//
// Ranks of one process that share a GPU share its watch: NVML belongs to the process, and the
// driver's profiling unit to the GPU. Runs with four readers at a time crashed.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "device/gpu/nvml.h"
#include "train/setup/ranks.h"
#include "train/setup/setup.h"

namespace trireme::train {

class HardwareWatch {
 public:
  // Watches a GPU of NVML: `bus_id`, or, if it is empty, `index` modulo the number of GPUs.
  struct Options {
    std::string bus_id;
    int index = 0;
    device::Nvml::Counters counters = device::Nvml::Counters::status;
    std::string library = "libnvidia-ml.so.1";
    double seconds = 1;  // between two reads
  };
  explicit HardwareWatch(const Options&);
  ~HardwareWatch();  // ends the thread
  HardwareWatch(const HardwareWatch&) = delete;
  HardwareWatch& operator=(const HardwareWatch&) = delete;

  // Returns an empty text if a device is watched; otherwise why not.
  const std::string& problem() const { return problem_; }
  // Returns the counters that were read last. Does not wait.
  device::GpuCounters latest() const;

 private:
  void watch(double seconds);

  device::Nvml nvml_;
  std::unique_ptr<device::Nvml::Gpu> gpu_;  // used by the thread alone after the constructor
  std::string problem_;
  mutable std::mutex mutex_;  // guards latest_ and is_stopping_
  std::condition_variable stops_;
  device::GpuCounters latest_;
  bool is_stopping_ = false;
  std::thread thread_;
};

// Returns the watch of these options that other ranks of this process have; a new one if none has.
std::shared_ptr<HardwareWatch> shared_hardware_watch(const HardwareWatch::Options&);

// Returns the watch that metrics.hardware ("auto", "on", "off") asks for; null: none.
std::shared_ptr<HardwareWatch> make_hardware_watch(const std::string& asked, const Platform&,
                                                   const RankStart&);

}  // namespace trireme::train
