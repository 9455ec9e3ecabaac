// SPDX-License-Identifier: Apache-2.0
#include "device/gpu/architectures.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

namespace trireme::device {
namespace {

struct Architecture {
  std::string name;  // "90a"
  bool has_code = true;
};

std::vector<Architecture> parsed(const std::string& architectures) {
  std::vector<Architecture> list;
  for (size_t begin = 0; begin < architectures.size();) {
    const size_t end = std::min(architectures.find(',', begin), architectures.size());
    Architecture one{.name = architectures.substr(begin, end - begin)};
    if (const size_t dash = one.name.find('-'); dash != std::string::npos) {
      one.has_code = one.name.substr(dash) != "-virtual";
      one.name.resize(dash);
    }
    if (!one.name.empty()) list.push_back(one);
    begin = end + 1;
  }
  return list;
}

bool is_supported(const Architecture& one, int major, int minor) {
  const bool is_exact = one.name.back() < '0' || one.name.back() > '9';
  const int number = std::stoi(one.name);
  const int built_major = number / 10, built_minor = number % 10;
  if (is_exact) return built_major == major && built_minor == minor;
  if (one.has_code) return built_major == major && built_minor <= minor;
  return number <= 10 * major + minor;
}

}  // namespace

bool runs_on(const std::string& architectures, int major, int minor) {
  const std::vector<Architecture> list = parsed(architectures);
  return std::any_of(list.begin(), list.end(), [major, minor](const Architecture& one) {
    return is_supported(one, major, minor);
  });
}

bool is_ptx_only(const std::string& architectures) {
  const std::vector<Architecture> list = parsed(architectures);
  return !list.empty() && std::none_of(list.begin(), list.end(),
                                       [](const Architecture& one) { return one.has_code; });
}

std::string architectures_text(const std::string& architectures) {
  if (!is_ptx_only(architectures)) return "sm " + architectures;
  std::string names;
  for (const Architecture& one : parsed(architectures)) {
    names += (names.empty() ? "" : ",") + one.name;
  }
  return fmt::format(
      "sm {} as PTX (not optimised; the driver compiles it at the first start, which takes "
      "minutes; "
      "-DCMAKE_CUDA_ARCHITECTURES={} builds code)",
      names, names);
}

}  // namespace trireme::device
