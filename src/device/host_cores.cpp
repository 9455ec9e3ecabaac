// SPDX-License-Identifier: Apache-2.0
#include "device/host_cores.h"

#include <fmt/format.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <fstream>
#include <memory>
#include <optional>

#include "base/error.h"

namespace trireme::device {
namespace {

namespace fs = std::filesystem;

std::set<int> affinity_mask() {
  struct Freed {
    void operator()(cpu_set_t* set) const { CPU_FREE(set); }
  };
  // The kernel refuses a mask that is shorter than its mask.
  for (int processors = 1024; processors <= 1 << 20; processors *= 4) {
    const std::unique_ptr<cpu_set_t, Freed> set(CPU_ALLOC(static_cast<size_t>(processors)));
    const size_t bytes = CPU_ALLOC_SIZE(static_cast<size_t>(processors));
    if (set == nullptr) break;
    if (::sched_getaffinity(0, bytes, set.get()) != 0) {
      if (errno == EINVAL) continue;
      break;
    }
    std::set<int> mask;
    for (int processor = 0; processor < processors; ++processor) {
      if (CPU_ISSET_S(static_cast<size_t>(processor), bytes, set.get())) mask.insert(processor);
    }
    return mask;
  }
  return {};
}

std::optional<double> first_number(const fs::path& file) {
  std::ifstream in(file);
  double value = 0;
  if (!(in >> value)) return {};
  return value;
}

// Returns the CPU quota of a group in cores, from "quota period" of version 2 or two files of
// version 1; 0: no limit.
double quota_of(const fs::path& group) {
  double quota = 0, period = 0;
  std::ifstream in(group / "cpu.max");
  if (!(in >> quota >> period)) {  // "max period" is not a number
    quota = first_number(group / "cpu.cfs_quota_us").value_or(0);
    period = first_number(group / "cpu.cfs_period_us").value_or(0);
  }
  return quota > 0 && period > 0 ? quota / period : 0;
}

double cpu_quota(const ControlGroupFiles& files) {
  double lowest = 0;
  for (const ControlGroup& group : control_groups(files, "cpu")) {
    const double quota = quota_of(group.folder);
    if (quota > 0) lowest = lowest > 0 ? std::min(lowest, quota) : quota;
  }
  return lowest;
}

int whole_cores(double cores) {
  return std::max(1, static_cast<int>(cores + 1e-6));  // tolerates rounding, as in sums of thirds
}

}  // namespace

int HostCores::count() const {
  const auto masked =
      static_cast<double>(mask.empty() ? static_cast<size_t>(machine) : mask.size());
  return whole_cores(quota > 0 ? std::min(masked, quota) : masked);
}

std::string HostCores::source() const {
  const int masked = mask.empty() ? machine : static_cast<int>(mask.size());
  if (count() < masked) {
    return fmt::format("CPU quota of the control group, {:g} of {} cores", quota, masked);
  }
  if (masked < machine) return fmt::format("affinity mask, {} of {} cores", masked, machine);
  return "all cores of this machine";
}

HostCores host_cores(const ControlGroupFiles& files) {
  HostCores cores{.mask = affinity_mask(), .quota = cpu_quota(files)};
  const auto online = static_cast<int>(::sysconf(_SC_NPROCESSORS_ONLN));
  cores.machine = std::max({1, online, static_cast<int>(cores.mask.size())});
  return cores;
}

std::string mask_text(const std::set<int>& mask) {
  std::string text;
  for (auto at = mask.begin(); at != mask.end();) {
    const int first = *at;
    int last = first;
    while (++at != mask.end() && *at == last + 1) last = *at;
    if (!text.empty()) text += ',';
    text += first == last ? fmt::format("{}", first) : fmt::format("{}-{}", first, last);
  }
  return text;
}

std::set<int> mask_from(const std::string& text) {
  std::set<int> mask;
  const char* at = text.data();
  const char* const end = at + text.size();
  const auto number = [&] {
    int value = -1;
    const auto [behind, error] = std::from_chars(at, end, value);
    constexpr int max_processor = 1 << 20;
    if (error != std::errc() || value < 0 || value > max_processor) {
      throw base::IoError(fmt::format("'{}' is not a list of CPU cores", text.substr(0, 80)));
    }
    at = behind;
    return value;
  };
  const auto skips = [&](char c) {
    const bool is_next = at != end && *at == c;
    if (is_next) ++at;
    return is_next;
  };
  if (text.empty()) return mask;
  do {
    const int first = number();
    const int last = skips('-') ? number() : first;
    for (int processor = first; processor <= last; ++processor) mask.insert(processor);
  } while (skips(','));
  if (at != end) (void)number();  // throws: this is not a number
  return mask;
}

int share_of_cores(std::span<const std::set<int>> masks, size_t own, double quota) {
  double cores = 0;
  for (const int processor : masks[own]) {
    const auto users = std::count_if(masks.begin(), masks.end(), [&](const std::set<int>& mask) {
      return mask.contains(processor);
    });
    cores += 1.0 / static_cast<double>(users);
  }
  if (quota > 0) cores = std::min(cores, quota / static_cast<double>(masks.size()));
  return whole_cores(cores);
}

}  // namespace trireme::device
