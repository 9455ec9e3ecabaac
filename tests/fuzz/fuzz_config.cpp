// SPDX-License-Identifier: Apache-2.0
#include <optional>

#include "base/error.h"
#include "base/text/json.h"
#include "config/config.h"
#include "memory_file.h"
#include "readers.h"

namespace trireme::fuzz {

// A configuration that loads has a resolved form that loads to the same values.
bool read_config(Input input) {
  static const MemoryFile file, resolved_file;
  static const config::LoadOptions options{
      .overrides = {},
      .model_folders = {std::filesystem::path(TRIREME_SOURCE_DIR) / "configs/models"}};
  file.fill(input);
  std::optional<config::Config> loaded;
  try {
    loaded = config::solved(config::load(file.path(), options), 0);
  } catch (const base::Error&) {
    return false;  // refused
  }
  const std::string resolved = config::to_json(*loaded).dump();
  resolved_file.fill(std::as_bytes(std::span(resolved)));
  const config::Config read = config::load(resolved_file.path(), {});
  const std::string again = config::to_json(config::solved(read, 0)).dump();
  TRIREME_CHECK(again == resolved, "\n{}\nreads back as\n{}", resolved, again);
  return true;
}

}  // namespace trireme::fuzz
