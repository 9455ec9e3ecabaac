// SPDX-License-Identifier: Apache-2.0
// A layout as the configuration that `trireme train` runs.
#pragma once

#include <string>

#include "spec/layout/layout.h"

namespace trireme::config {

struct ConfigHead {
  std::string model;    // as model.name
  std::string comment;  // lines of the file's head, without #
};
// Returns TOML with the keys that the layout needs; load() of it returns the layout. REQUIRES: a
// settled layout without a custom schedule.
std::string config_text(const spec::Workload&, const spec::Layout&, const ConfigHead&);

}  // namespace trireme::config
