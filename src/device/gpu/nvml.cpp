// SPDX-License-Identifier: Apache-2.0
// NVML's ABI is stable: functions and structures are declared here as its documentation lists them,
// so that no header of NVIDIA is needed.
#include "device/gpu/nvml.h"

#include <array>
#include <type_traits>
#include <utility>

#include "base/error.h"

namespace trireme::device {

using Status = int;  // nvmlReturn_t
using DeviceHandle = void*;
using GpmSample = void*;

// Not in an unnamed namespace, because members of a class with linkage have these types.
struct NvmlMemory {
  unsigned long long total, free, used;
};

struct GpmSupport {
  unsigned version, is_supported;
};
struct GpmInfo {
  char *short_name, *long_name, *unit;
};
struct GpmMetric {
  unsigned id;
  Status status;
  double value;
  GpmInfo info;
};
// At least as many as any version of the library may write.
constexpr size_t max_gpm_metrics = 512;
struct GpmMetrics {
  unsigned version, count;
  GpmSample first, second;
  std::array<GpmMetric, max_gpm_metrics> metrics;
};

namespace {

constexpr Status success = 0;

constexpr unsigned clock_sm = 1, temperature_gpu = 0, ecc_uncorrected = 1, ecc_volatile = 0;

constexpr unsigned gpm_version = 1;
constexpr unsigned gpm_sm = 2, gpm_any_tensor = 5, gpm_pcie_tx = 20, gpm_pcie_rx = 21,
                   gpm_nvlink_rx = 60, gpm_nvlink_tx = 61;
constexpr double hz_per_mhz = 1e6, watts_per_milliwatt = 1e-3, percent = 1e-2,
                 bytes_per_mib = 1 << 20;

// Returns null if the library does not have the function.
template <typename Function>
Function* find(const base::SharedLibrary& library, const char* name) {
  try {
    return library.function<Function>(name);
  } catch (const base::ConfigError&) {
    return nullptr;  // an older driver
  }
}

}  // namespace

struct Nvml::Gpu::Handles {
  DeviceHandle device = nullptr;
  Status (*clock)(DeviceHandle, unsigned, unsigned*) = nullptr;
  Status (*max_clock)(DeviceHandle, unsigned, unsigned*) = nullptr;
  Status (*power)(DeviceHandle, unsigned*) = nullptr;
  Status (*temperature)(DeviceHandle, unsigned, unsigned*) = nullptr;
  Status (*ecc)(DeviceHandle, unsigned, unsigned, unsigned long long*) = nullptr;
  Status (*reasons)(DeviceHandle, unsigned long long*) = nullptr;
  Status (*memory)(DeviceHandle, NvmlMemory*) = nullptr;
  Status (*gpm_free)(GpmSample) = nullptr;
  Status (*gpm_get)(DeviceHandle, GpmSample) = nullptr;
  Status (*gpm_metrics)(GpmMetrics*) = nullptr;
  std::array<GpmSample, 2> samples{};  // null: the GPU has no such counters
  bool has_sample = false;             // the first one is set
  GpmMetrics metrics{};

  void open_gpm(const base::SharedLibrary& library);
  void read_gpm(GpuCounters&);
};

void Nvml::Gpu::Handles::open_gpm(const base::SharedLibrary& library) {
  auto* query = find<Status(DeviceHandle, GpmSupport*)>(library, "nvmlGpmQueryDeviceSupport");
  auto* alloc = find<Status(GpmSample*)>(library, "nvmlGpmSampleAlloc");
  gpm_free = find<Status(GpmSample)>(library, "nvmlGpmSampleFree");
  gpm_get = find<Status(DeviceHandle, GpmSample)>(library, "nvmlGpmSampleGet");
  gpm_metrics = find<Status(GpmMetrics*)>(library, "nvmlGpmMetricsGet");
  if (!query || !alloc || !gpm_free || !gpm_get || !gpm_metrics) return;
  GpmSupport support{.version = gpm_version, .is_supported = 0};
  if (query(device, &support) != success || support.is_supported == 0) return;
  for (GpmSample& sample : samples) {
    if (alloc(&sample) != success) sample = nullptr;
  }
}

void Nvml::Gpu::Handles::read_gpm(GpuCounters& counters) {
  if (samples[0] == nullptr || samples[1] == nullptr) return;
  if (!has_sample) {
    has_sample = gpm_get(device, samples[0]) == success;
    return;
  }
  if (gpm_get(device, samples[1]) != success) return;
  constexpr std::array ids = {gpm_sm,      gpm_any_tensor, gpm_pcie_tx,
                              gpm_pcie_rx, gpm_nvlink_rx,  gpm_nvlink_tx};
  metrics.version = gpm_version;
  metrics.count = static_cast<unsigned>(ids.size());
  metrics.first = samples[0];
  metrics.second = samples[1];
  for (size_t i = 0; i < ids.size(); ++i)
    metrics.metrics[i] = {.id = ids[i], .status = -1, .value = 0, .info = {}};
  std::swap(samples[0], samples[1]);
  if (gpm_metrics(&metrics) != success) return;
  const auto value = [this](size_t i) {
    const GpmMetric& metric = metrics.metrics[i];
    return metric.status == success ? metric.value : GpuCounters::unknown;
  };
  counters.sm_share = percent * value(0);
  counters.tensor_share = percent * value(1);
  counters.pcie_bytes_per_second = bytes_per_mib * (value(2) + value(3));
  counters.nvlink_bytes_per_second = bytes_per_mib * (value(4) + value(5));
}

Nvml::Gpu::Gpu(std::unique_ptr<Handles> handles) : handles_(std::move(handles)) {}

Nvml::Gpu::~Gpu() {
  for (GpmSample sample : handles_->samples) {
    if (sample != nullptr) handles_->gpm_free(sample);
  }
}

GpuCounters Nvml::Gpu::read() {
  GpuCounters counters;
  Handles& h = *handles_;
  unsigned value = 0;
  if (h.clock && h.clock(h.device, clock_sm, &value) == success) {
    counters.clock_hz = hz_per_mhz * value;
  }
  if (h.max_clock && h.max_clock(h.device, clock_sm, &value) == success) {
    counters.max_clock_hz = hz_per_mhz * value;
  }
  if (h.power && h.power(h.device, &value) == success) {
    counters.power_watts = watts_per_milliwatt * value;
  }
  if (h.temperature && h.temperature(h.device, temperature_gpu, &value) == success) {
    counters.temperature_celsius = value;
  }
  unsigned long long wide = 0;
  if (h.ecc && h.ecc(h.device, ecc_uncorrected, ecc_volatile, &wide) == success) {
    counters.ecc_errors = static_cast<double>(wide);
  }
  if (h.reasons && h.reasons(h.device, &wide) == success) {
    counters.throttle_reasons = static_cast<double>(wide);
  }
  NvmlMemory memory{};
  if (h.memory && h.memory(h.device, &memory) == success) {
    counters.used_bytes = static_cast<double>(memory.used);
    counters.total_bytes = static_cast<double>(memory.total);
  }
  h.read_gpm(counters);
  return counters;
}

Nvml::Nvml(const std::string& file)
    : library_({.name = "the NVIDIA driver", .file = file}), problem_(library_.problem()) {
  if (!problem_.empty()) return;
  auto* init = find<Status()>(library_, "nvmlInit_v2");
  const Status status = init == nullptr ? -1 : init();
  if (init == nullptr) {
    problem_ = file + " has no function nvmlInit_v2";
  } else if (status != success) {
    problem_ = file + " reports error " + std::to_string(status) + " when it is initialised";
  }
}

Nvml::~Nvml() {
  if (!problem_.empty()) return;
  if (auto* shutdown = find<Status()>(library_, "nvmlShutdown")) shutdown();
}

int Nvml::devices() const {
  if (!problem_.empty()) return 0;
  auto* count = find<Status(unsigned*)>(library_, "nvmlDeviceGetCount_v2");
  unsigned found = 0;
  return count != nullptr && count(&found) == success ? static_cast<int>(found) : 0;
}

std::unique_ptr<Nvml::Gpu> Nvml::at_bus(const std::string& bus_id, Counters counters) const {
  if (!problem_.empty()) return nullptr;
  auto* by_bus =
      find<Status(const char*, DeviceHandle*)>(library_, "nvmlDeviceGetHandleByPciBusId_v2");
  DeviceHandle device = nullptr;
  if (by_bus == nullptr || by_bus(bus_id.c_str(), &device) != success) return nullptr;
  return gpu_of(device, counters);
}

std::unique_ptr<Nvml::Gpu> Nvml::at_index(int index, Counters counters) const {
  if (!problem_.empty() || index < 0) return nullptr;
  auto* by_index = find<Status(unsigned, DeviceHandle*)>(library_, "nvmlDeviceGetHandleByIndex_v2");
  DeviceHandle device = nullptr;
  if (by_index == nullptr || by_index(static_cast<unsigned>(index), &device) != success) {
    return nullptr;
  }
  return gpu_of(device, counters);
}

std::unique_ptr<Nvml::Gpu> Nvml::gpu_of(void* device, Counters counters) const {
  auto handles = std::make_unique<Gpu::Handles>();
  const auto set = [this](auto*& function, const char* name) {
    function =
        find<std::remove_pointer_t<std::remove_reference_t<decltype(function)>>>(library_, name);
  };
  handles->device = device;
  set(handles->clock, "nvmlDeviceGetClockInfo");
  set(handles->max_clock, "nvmlDeviceGetMaxClockInfo");
  set(handles->power, "nvmlDeviceGetPowerUsage");
  set(handles->temperature, "nvmlDeviceGetTemperature");
  set(handles->ecc, "nvmlDeviceGetTotalEccErrors");
  set(handles->reasons, "nvmlDeviceGetCurrentClocksThrottleReasons");
  set(handles->memory, "nvmlDeviceGetMemoryInfo");
  if (counters == Counters::status_and_activity) handles->open_gpm(library_);
  return std::make_unique<Gpu>(std::move(handles));
}

}  // namespace trireme::device
