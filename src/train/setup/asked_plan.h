// SPDX-License-Identifier: Apache-2.0
// What a run becomes on a number of ranks: the configuration as it was asked for, with its open
// keys solved for them and for the checkpoint that the run continues.
#pragma once

#include <optional>

#include "config/config.h"
#include "train/checkpointing/resume_point.h"

namespace trireme::train {

// Returns a loaded configuration without open keys, for `world` ranks (0: the product of its
// degrees) and the order of sums of a checkpoint; none: the run starts. A pure function of its
// arguments: called again with other ranks or another checkpoint, it returns what a new start with
// them would. Only what depends on the device is left to settled() and make_plan(). Throws
// ConfigError if these ranks cannot run it, or if the checkpoint's plan cannot be read.
config::Config plan_for(const config::Config& asked, int world,
                        const std::optional<ResumePoint>& saved);

}  // namespace trireme::train
