// SPDX-License-Identifier: Apache-2.0
// The degrees of a configuration, and the sizes that they must divide, in the terms of spec.
#pragma once

#include "config/apply.h"
#include "config/config.h"
#include "spec/job_layout.h"

namespace trireme::config {

// Puts what is left open (-1, logical_dp = 0, reduce = "auto", the batch) and reports every rule
// that degrees, model and batch break together; reads the schedule file. `folder` is
// that of the configuration's file; of the options `world` and `saved` count.
void solve_layout(Config& config, const std::filesystem::path& folder, const LoadOptions& options,
                  Report& report);

// Of a configuration that load() returned.
spec::JobLayout layout_of(const Config& config);
spec::SplitOptions split_of(const Config& config);

}  // namespace trireme::config
