// SPDX-License-Identifier: Apache-2.0
// A library that answers as NVML does, for tests on machines without a GPU. Its file is named as
// NVML's, so that LD_LIBRARY_PATH puts it in NVML's place. The environment variable
// TRIREME_NVML_STUB names a text file with lines "GPU KEY VALUE", which is read at every call:
//
//   * clock 1980          the SM clock of all GPUs, in MHz
//   2 clock 1200          that of GPU 2; later lines win
//   2 power error         this call fails
//
// Keys and defaults are listed below. With TRIREME_STUB_OLD the library lacks the functions that
// older drivers lack.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <string>

namespace {

using Status = int;
constexpr Status success = 0, invalid_argument = 2, not_supported = 3, unknown_error = 999;

const std::map<std::string, double> defaults = {
    {"count", 8},        {"init", 0},         {"clock", 1980},  {"max_clock", 1980},
    {"power", 650'000},  {"temperature", 55}, {"ecc", 0},       {"reasons", 0},
    {"total", 8e10},     {"used", 6e10},      {"gpm", 1},       {"sm", 92},
    {"tensor", 41},      {"pcie_tx", 100},    {"pcie_rx", 200}, {"nvlink_tx", 3000},
    {"nvlink_rx", 4000},
};

// Returns the value of a key of a GPU. False: the call fails.
bool value_of(int gpu, const std::string& key, double& value) {
  value = defaults.at(key);
  bool is_good = true;
  const char* path = std::getenv("TRIREME_NVML_STUB");
  if (path == nullptr) return true;
  std::ifstream file(path);
  std::string of, name, text;
  while (file >> of >> name >> text) {
    if (name != key || (of != "*" && of != std::to_string(gpu))) continue;
    is_good = text != "error";
    if (is_good) value = std::strtod(text.c_str(), nullptr);
  }
  return is_good;
}

int gpu_of(void* device) { return static_cast<int>(reinterpret_cast<uintptr_t>(device)) - 1; }

template <typename Number>
Status answer(void* device, const char* key, Number* to) {
  double value = 0;
  if (!value_of(gpu_of(device), key, value)) return unknown_error;
  *to = static_cast<Number>(value);
  return success;
}

int count() {
  double value = 0;
  return value_of(0, "count", value) ? static_cast<int>(value) : -1;
}

Status handle_of(int gpu, void** device) {
  if (gpu < 0 || gpu >= count()) return invalid_argument;
  *device = reinterpret_cast<void*>(static_cast<uintptr_t>(gpu) + 1);
  return success;
}

struct Memory {
  unsigned long long total, free, used;
};

}  // namespace

extern "C" {

Status nvmlInit_v2() {
  double value = 0;
  return value_of(0, "init", value) ? static_cast<Status>(value) : unknown_error;
}
Status nvmlShutdown() { return success; }
Status nvmlDeviceGetCount_v2(unsigned* to) {
  if (count() < 0) return unknown_error;
  *to = static_cast<unsigned>(count());
  return success;
}
Status nvmlDeviceGetHandleByIndex_v2(unsigned index, void** device) {
  return handle_of(static_cast<int>(index), device);
}
// GPU i is at bus i + 1.
Status nvmlDeviceGetHandleByPciBusId_v2(const char* id, void** device) {
  unsigned domain = 0, bus = 0;
  if (std::sscanf(id, "%x:%x:00.0", &domain, &bus) != 2) return invalid_argument;
  return handle_of(static_cast<int>(bus) - 1, device);
}
Status nvmlDeviceGetClockInfo(void* device, unsigned /*type*/, unsigned* to) {
  return answer(device, "clock", to);
}
Status nvmlDeviceGetMaxClockInfo(void* device, unsigned /*type*/, unsigned* to) {
  return answer(device, "max_clock", to);
}
Status nvmlDeviceGetPowerUsage(void* device, unsigned* to) { return answer(device, "power", to); }
Status nvmlDeviceGetTemperature(void* device, unsigned /*sensor*/, unsigned* to) {
  return answer(device, "temperature", to);
}
Status nvmlDeviceGetMemoryInfo(void* device, Memory* to) {
  *to = {};
  const Status status = answer(device, "total", &to->total);
  return status == success ? answer(device, "used", &to->used) : status;
}

#ifndef TRIREME_STUB_OLD

Status nvmlDeviceGetTotalEccErrors(void* device, unsigned /*type*/, unsigned /*counter*/,
                                   unsigned long long* to) {
  return answer(device, "ecc", to);
}
Status nvmlDeviceGetCurrentClocksThrottleReasons(void* device, unsigned long long* to) {
  return answer(device, "reasons", to);
}

struct GpmSupport {
  unsigned version, is_supported;
};
struct GpmMetric {
  unsigned id;
  Status status;
  double value;
  const char *short_name, *long_name, *unit;
};
struct GpmMetrics {
  unsigned version, count;
  void *first, *second;
  GpmMetric metrics[98];
};

Status nvmlGpmQueryDeviceSupport(void* device, GpmSupport* to) {
  return answer(device, "gpm", &to->is_supported);
}
// A sample holds the GPU that it was taken of.
Status nvmlGpmSampleAlloc(void** sample) {
  *sample = std::calloc(1, sizeof(void*));
  return success;
}
Status nvmlGpmSampleFree(void* sample) {
  std::free(sample);
  return success;
}
Status nvmlGpmSampleGet(void* device, void* sample) {
  *static_cast<void**>(sample) = device;
  return success;
}
Status nvmlGpmMetricsGet(GpmMetrics* all) {
  const std::map<unsigned, const char*> keys = {{2, "sm"},         {5, "tensor"},
                                                {20, "pcie_tx"},   {21, "pcie_rx"},
                                                {60, "nvlink_rx"}, {61, "nvlink_tx"}};
  void* device = *static_cast<void**>(all->first);
  if (all->version != 1 || device != *static_cast<void**>(all->second)) return invalid_argument;
  for (unsigned i = 0; i < all->count; ++i) {
    GpmMetric& metric = all->metrics[i];
    const auto key = keys.find(metric.id);
    metric.status = key == keys.end() ? not_supported : answer(device, key->second, &metric.value);
  }
  return success;
}

#endif

}  // extern "C"
