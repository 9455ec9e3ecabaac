// SPDX-License-Identifier: Apache-2.0
#include "base/system/shared_library.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <link.h>

#include <filesystem>
#include <system_error>
#include <utility>

#include "base/error.h"

namespace trireme::base {
namespace {

// Returns the error of the last dlopen or dlsym, without the repeated name of the file.
std::string loader_error(const std::string& file) {
  const char* text = ::dlerror();
  std::string error = text == nullptr ? "unknown error" : text;
  if (error.starts_with(file + ": ")) error.erase(0, file.size() + 2);
  return error;
}

}  // namespace

SharedLibrary::SharedLibrary(Options options) : options_(std::move(options)) {
  constexpr int mode = RTLD_NOW | RTLD_LOCAL;
  std::string reason;
  handle_ = ::dlopen(options_.file.c_str(), mode);
  if (handle_ == nullptr) reason = loader_error(options_.file);
  for (const std::string& folder : options_.folders) {
    if (handle_ != nullptr) break;
    const std::string file = folder + "/" + options_.file;
    std::error_code unknown;
    if (!std::filesystem::exists(file, unknown)) continue;
    handle_ = ::dlopen(file.c_str(), mode);
    if (handle_ == nullptr) reason = loader_error(options_.file);
  }
  if (handle_ == nullptr) {
    problem_ = fmt::format("{} cannot be loaded: {}", options_.file, reason);
    if (!options_.folders.empty()) {
      problem_ += fmt::format(" (also tried {})", fmt::join(options_.folders, ", "));
    }
    problem_ += fmt::format("; install {}, or set LD_LIBRARY_PATH to the folder that contains it",
                            options_.name);
    return;
  }
  const link_map* map = nullptr;
  if (::dlinfo(handle_, RTLD_DI_LINKMAP, &map) == 0 && map != nullptr) path_ = map->l_name;
}

void* SharedLibrary::address_of(const char* name) const {
  if (handle_ == nullptr) throw ConfigError(problem_);
  void* address = ::dlsym(handle_, name);
  if (address == nullptr) {
    throw ConfigError(
        fmt::format("{} has no function {}: it is older than the {} that this "
                    "program was built with; install a newer one",
                    path_, name, options_.name));
  }
  return address;
}

LibraryReport report_of(const SharedLibrary& library, std::string name, int version) {
  LibraryReport report{.name = std::move(name),
                       .file = library.file(),
                       .path = library.path(),
                       .version = {},
                       .problem = library.problem()};
  if (report.problem.empty()) {
    report.version = fmt::format("{}.{}.{}", version / 10000, version / 100 % 100, version % 100);
  }
  return report;
}

}  // namespace trireme::base
