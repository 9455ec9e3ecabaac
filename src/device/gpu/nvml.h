// SPDX-License-Identifier: Apache-2.0
// Hardware counters of NVIDIA GPUs, from the driver's management library (NVML), which is loaded at
// run time. No call throws: what the library, the driver or the GPU does not provide is NaN.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <string>

#include "base/system/shared_library.h"

namespace trireme::device {

// NaN: unknown.
struct GpuCounters {
  static constexpr double unknown = std::numeric_limits<double>::quiet_NaN();
  double clock_hz = unknown, max_clock_hz = unknown;  // of the multiprocessors
  double power_watts = unknown;
  double temperature_celsius = unknown;
  double ecc_errors = unknown;        // uncorrected, since the driver was loaded
  double throttle_reasons = unknown;  // NVML's bits, see throttle_reason
  double used_bytes = unknown, total_bytes = unknown;
  // Activity: on Hopper and later, over the time between two calls; shares are from 0 to 1.
  double sm_share = unknown, tensor_share = unknown;
  double nvlink_bytes_per_second = unknown, pcie_bytes_per_second = unknown;  // both directions
};

// NVML's bits of reasons why clocks are below the maximum.
namespace throttle_reason {
constexpr uint64_t idle = 0x1, clock_setting = 0x2, power_cap = 0x4, hardware_slowdown = 0x8,
                   sync_boost = 0x10, software_thermal = 0x20, hardware_thermal = 0x40,
                   power_brake = 0x80, display = 0x100;
// Those that mean that something is wrong with cooling or power supply.
constexpr uint64_t harmful = hardware_slowdown | software_thermal | hardware_thermal | power_brake;
}  // namespace throttle_reason

class Nvml {
 public:
  // Loads `file` and initialises it. A failure is kept in problem().
  explicit Nvml(const std::string& file = "libnvidia-ml.so.1");
  ~Nvml();
  Nvml(const Nvml&) = delete;
  Nvml& operator=(const Nvml&) = delete;

  // Returns an empty text if the library can be used; otherwise why not.
  const std::string& problem() const { return problem_; }
  int devices() const;  // 0 if there are none or the library cannot be used

  // Which counters to read. Those of activity come from the GPU's profiling unit.
  enum class Counters : uint8_t { status, status_and_activity };

  // One GPU. Must be destroyed before the Nvml. Calls are made by one thread at a time.
  class Gpu {
   public:
    struct Handles;
    explicit Gpu(std::unique_ptr<Handles> handles);
    ~Gpu();
    Gpu(const Gpu&) = delete;
    Gpu& operator=(const Gpu&) = delete;
    GpuCounters read();

   private:
    std::unique_ptr<Handles> handles_;
  };
  // Return null if there is no such GPU. `bus_id`: as CUDA prints it, "0000:65:00.0".
  std::unique_ptr<Gpu> at_bus(const std::string& bus_id, Counters) const;
  std::unique_ptr<Gpu> at_index(int index, Counters) const;

 private:
  std::unique_ptr<Gpu> gpu_of(void* device, Counters) const;

  base::SharedLibrary library_;
  std::string problem_;
};

}  // namespace trireme::device
