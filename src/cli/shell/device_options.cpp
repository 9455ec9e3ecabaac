// SPDX-License-Identifier: Apache-2.0
#include "cli/shell/device_options.h"

#include <fmt/format.h>

#include <cstdlib>
#include <string>

#include "base/error.h"
#include "cli/shell/environment.h"

namespace trireme::cli {
namespace {

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

}  // namespace

std::vector<Option> device_options() {
  return {
      {.name = "--device",
       .fallback = "auto",
       .help = "Device: auto (a GPU if one is usable), cuda (or gpu) or cpu"},
      {.name = "--gpu", .kind = Kind::integer, .fallback = "0", .help = "Index of the GPU, from 0"},
      {.name = "--determinism",
       .fallback = "l1",
       .help = "Determinism: l1 (repeated runs give the same bits) or fast (also nondeterministic "
               "kernels)",
       .choices = {"l1", "fast"}},
      {.name = "--threads",
       .kind = Kind::integer,
       .fallback = "0",
       .help = "Number of CPU threads; 0: OMP_NUM_THREADS, or all cores that the process may use"}};
}

config::System system_of(const Args& args) {
  if (args.integer("--gpu") < 0) {
    throw base::ConfigError(fmt::format("--gpu {}: 0 or above", args.integer("--gpu")));
  }
  config::System system;
  system.device = args.text("--device") == "gpu" ? "cuda" : args.text("--device");
  system.gpu = args.small_integer("--gpu");
  system.determinism = args.text("--determinism");
  system.cache_folder = default_cache_folder().string();
  system.threads = threads_asked(args.integer("--threads"));
  return system;
}

std::filesystem::path default_cache_folder() {
  if (const std::string own = environment("TRIREME_CACHE_DIR"); !own.empty()) return own;
  if (const std::string all = environment("XDG_CACHE_HOME"); !all.empty()) {
    return std::filesystem::path(all) / "trireme";
  }
  if (const std::string home = environment("HOME"); !home.empty()) {
    return std::filesystem::path(home) / ".cache" / "trireme";
  }
  return {};
}

}  // namespace trireme::cli
