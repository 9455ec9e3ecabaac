// SPDX-License-Identifier: Apache-2.0
// The options of `train` and `launch` that resume a run.
#pragma once

#include <optional>

#include "cli/shell/args.h"
#include "config/config.h"
#include "train/checkpointing/run_checkpoints.h"

namespace trireme::cli {

// Throws ConfigError if --resume is malformed or contradicts --overwrite.
train::Resume resume_of(const Args&);

// Returns how the checkpoint that will be resumed from orders its sums. Returns nothing if there is
// none or it cannot be read: loading it then reports the error.
std::optional<config::SavedSums> saved_sums(const train::Resume&, const config::Config&);

}  // namespace trireme::cli
