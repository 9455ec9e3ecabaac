// SPDX-License-Identifier: Apache-2.0
// Configurations as TOML text that `trireme train` runs: of a layout, or of any keys.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "config/config.h"
#include "spec/layout/layout.h"

namespace trireme::config {

struct ConfigHead {
  std::string model;    // as model.name
  std::string comment;  // lines of the file's head, without #
};
// Returns TOML with the keys that the layout needs; load() of it returns the layout. REQUIRES: a
// settled layout without a custom schedule.
std::string config_text(const spec::Workload&, const spec::Layout&, const ConfigHead&);

// What is written beside the values of a configuration.
struct WrittenKeys {
  std::string comment;  // lines of the file's head, without #
  // Comments by path, which may be empty. Keys in this map are written even if they have their
  // default; all others only if they differ from it.
  std::map<std::string, std::string> notes;
  std::optional<spec::ModelDims> dims;  // written as [model.dims]
  bool notes_above = false;             // comments are lines above their keys, not behind them
};
// Returns TOML; load() of it returns the configuration. The key training.dtype, the alias of
// precision.recipe, is not written.
std::string toml_text(const Config&, const WrittenKeys&);

}  // namespace trireme::config
