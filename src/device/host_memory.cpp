// SPDX-License-Identifier: Apache-2.0
#include "device/host_memory.h"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <limits>
#include <optional>
#include <string>
#include <string_view>

namespace trireme::device {
namespace {

namespace fs = std::filesystem;

constexpr int64_t unlimited = std::numeric_limits<int64_t>::max();

std::optional<int64_t> number_in(std::string_view text) {
  const size_t first = text.find_first_of("0123456789");
  if (first == std::string_view::npos) return {};
  int64_t value = 0;
  const auto read = std::from_chars(text.data() + first, text.data() + text.size(), value);
  if (read.ec == std::errc::result_out_of_range) return unlimited;
  return value;
}

// Returns the number in a file; none for "max" or if the file is missing.
std::optional<int64_t> number_of_file(const fs::path& file) {
  std::ifstream in(file);
  std::string text;
  if (!std::getline(in, text)) return {};
  return number_in(text);
}

// Returns the number in the line that begins with `key`.
std::optional<int64_t> number_of_line(const fs::path& file, std::string_view key) {
  std::ifstream in(file);
  for (std::string line; std::getline(in, line);) {
    if (line.starts_with(key)) return number_in(std::string_view(line).substr(key.size()));
  }
  return {};
}

// Returns the bytes that are still available under the limit of one group.
int64_t left_in(const ControlGroup& group) {
  const bool is_unified = group.is_unified;
  const auto limit =
      number_of_file(group.folder / (is_unified ? "memory.max" : "memory.limit_in_bytes"));
  const auto used =
      number_of_file(group.folder / (is_unified ? "memory.current" : "memory.usage_in_bytes"));
  if (!limit || !used) return unlimited;
  // The kernel reclaims file cache that can be read again.
  const char* const cache_key = is_unified ? "inactive_file " : "total_inactive_file ";
  const int64_t cache = number_of_line(group.folder / "memory.stat", cache_key).value_or(0);
  return std::max<int64_t>(0, *limit - std::max<int64_t>(0, *used - cache));
}

}  // namespace

int64_t host_memory_available(const HostMemoryFiles& files) {
  int64_t available = unlimited;
  if (const auto kib = number_of_line(files.meminfo, "MemAvailable:")) available = *kib * 1024;
  for (const ControlGroup& group : control_groups(files.groups, "memory")) {
    available = std::min(available, left_in(group));
  }
  return available;
}

}  // namespace trireme::device
