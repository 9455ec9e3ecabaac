// SPDX-License-Identifier: Apache-2.0
// The options of `train` and `launch` that resume a run.
#pragma once

#include "cli/shell/args.h"
#include "train/checkpointing/resume_point.h"

namespace trireme::cli {

// Throws ConfigError if --resume is malformed or contradicts --overwrite.
train::Resume resume_of(const Args&);

}  // namespace trireme::cli
