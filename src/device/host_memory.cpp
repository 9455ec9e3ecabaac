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

// Returns the one number of a file; nothing for "max" and where the file is missing.
std::optional<int64_t> number_of_file(const fs::path& file) {
  std::ifstream in(file);
  std::string text;
  if (!std::getline(in, text)) return {};
  return number_in(text);
}

// The number in the line that begins with `key`.
std::optional<int64_t> number_of_line(const fs::path& file, std::string_view key) {
  std::ifstream in(file);
  for (std::string line; std::getline(in, line);) {
    if (line.starts_with(key)) return number_in(std::string_view(line).substr(key.size()));
  }
  return {};
}

// What a group's limit leaves, and those of the groups that it is in, up to `root`.
int64_t left_in_groups(const fs::path& root, const fs::path& group, const char* limit_name,
                       const char* used_name, const char* cache_key) {
  int64_t left = unlimited;
  const fs::path inside = group.relative_path();
  fs::path folder = root;
  auto part = inside.begin();
  while (true) {
    const auto limit = number_of_file(folder / limit_name);
    const auto used = number_of_file(folder / used_name);
    if (limit && used) {
      // Files that were read and can be read again give way.
      const int64_t cache = number_of_line(folder / "memory.stat", cache_key).value_or(0);
      left = std::min(left, std::max<int64_t>(0, *limit - std::max<int64_t>(0, *used - cache)));
    }
    if (part == inside.end()) return left;
    folder /= *part++;
  }
}

}  // namespace

int64_t host_memory_available(const HostMemoryFiles& files) {
  int64_t available = unlimited;
  if (const auto kib = number_of_line(files.meminfo, "MemAvailable:")) available = *kib * 1024;
  // Lines are "0::/group" in version 2, "9:memory:/group" in version 1.
  std::ifstream in(files.cgroups_of_process);
  for (std::string line; std::getline(in, line);) {
    const size_t first = line.find(':');
    const size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string kinds = line.substr(first + 1, second - first - 1);
    const fs::path group = line.substr(second + 1);
    if (kinds.empty()) {
      available = std::min(available, left_in_groups(files.cgroup_root, group, "memory.max",
                                                     "memory.current", "inactive_file "));
    } else if (("," + kinds + ",").find(",memory,") != std::string::npos) {
      available = std::min(
          available, left_in_groups(files.cgroup_root / "memory", group, "memory.limit_in_bytes",
                                    "memory.usage_in_bytes", "total_inactive_file "));
    }
  }
  return available;
}

}  // namespace trireme::device
