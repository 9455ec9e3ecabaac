// SPDX-License-Identifier: Apache-2.0
// The configuration that was asked for, as it is on a number of ranks and after a checkpoint.
#pragma once

#include <optional>

#include "config/config.h"
#include "train/checkpointing/resume_point.h"

namespace trireme::train {

// Returns config::solved() with the order of sums of a checkpoint; none: the run starts. A pure
// function: called again with other ranks or another checkpoint, it returns what a new start with
// them would. What depends on the device is left to settled(). Also throws ConfigError if the
// checkpoint's plan cannot be read.
config::Config plan_for(const config::Config& asked, int world,
                        const std::optional<ResumePoint>& saved);

}  // namespace trireme::train
