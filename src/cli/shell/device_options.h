// SPDX-License-Identifier: Apache-2.0
// Options of every verb that computes: on which device, and how exactly it repeats itself.
#pragma once

#include <filesystem>
#include <vector>

#include "cli/shell/args.h"
#include "config/config.h"

namespace trireme::cli {

// --device, --gpu, --determinism, --threads.
std::vector<Option> device_options();
// What they say, with the default cache folder. REQUIRES: the verb has device_options().
config::System system_of(const Args&);

// $TRIREME_CACHE_DIR, else $XDG_CACHE_HOME/trireme, else ~/.cache/trireme; empty: none of these is
// there, and nothing is kept.
std::filesystem::path default_cache_folder();

}  // namespace trireme::cli
