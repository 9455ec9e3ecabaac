// SPDX-License-Identifier: Apache-2.0
// Options of every verb that computes: the device, and whether it is deterministic.
#pragma once

#include <filesystem>
#include <vector>

#include "cli/shell/args.h"
#include "config/config.h"

namespace trireme::cli {

// --device, --gpu, --determinism, --threads.
std::vector<Option> device_options();
// Returns the values of device_options() with the default cache folder. REQUIRES: the verb has
// device_options().
config::System system_of(const Args&);

// Returns $TRIREME_CACHE_DIR, otherwise $XDG_CACHE_HOME/trireme, otherwise ~/.cache/trireme; empty
// if none of the variables is set: then nothing is cached.
std::filesystem::path default_cache_folder();

}  // namespace trireme::cli
