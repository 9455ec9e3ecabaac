// SPDX-License-Identifier: Apache-2.0
// Where `trireme plan` reads the job from: a configuration, a model, or the settings of another
// program.
#pragma once

#include <string>

#include "cli/plan/plan_job.h"
#include "cli/shell/args.h"
#include "plan/stack.h"

namespace trireme::cli {

plan::Stack shipped_stack(const std::string& name);

// Sets the job, its layout and what else the source contains. Throws ConfigError if the arguments
// name no source or several.
void take_source(const Args&, PlanQuestion&);

}  // namespace trireme::cli
