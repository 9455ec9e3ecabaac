// SPDX-License-Identifier: Apache-2.0
// Converts a loaded configuration to the planner's job and layout.
#pragma once

#include "config/config.h"
#include "plan/job.h"

namespace trireme::plan {

Job job_of(const config::Config&);
// A custom schedule counts as 1F1B.
Layout layout_of(const config::Config&);

}  // namespace trireme::plan
