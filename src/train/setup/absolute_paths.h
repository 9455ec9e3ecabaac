// SPDX-License-Identifier: Apache-2.0
// The paths of a configuration, written so that they mean the same in any current folder.
#pragma once

#include "config/config.h"

namespace trireme::train {

// Returns the configuration with absolute paths of its inputs (data, tokenizer, weights, schedule
// file, a machine file that is given as a path) and of the run's and the cache's folder. Names that
// are searched for, and commands, stay as they are.
config::Config with_absolute_paths(config::Config);

}  // namespace trireme::train
