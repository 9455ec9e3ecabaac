// SPDX-License-Identifier: Apache-2.0
// A configuration as spec::Layout, and back.
#pragma once

#include "config/apply.h"
#include "config/config.h"
#include "spec/layout/layout.h"
#include "spec/layout/rules.h"

namespace trireme::config {

// Fills in what is left open (-1, logical_dp = 0, reduce = "auto", the batch) and reports every
// rule that degrees, model and batch break together; reads the schedule file. `folder` is that of
// the configuration's file; of the options `world` and `saved` count.
void solve_layout(Config& config, const std::filesystem::path& folder, const LoadOptions& options,
                  Report& report);

// The layout that the keys ask for, with what they leave open left open. REQUIRES: a schedule's
// name that is known. training.dtype = "auto" is bf16.
spec::Layout layout_of(const Config& config);
spec::Workload workload_of(const Config& config);
// The same with nothing left open. REQUIRES: a configuration that load() returned.
spec::Layout settled_layout(const Config& config);

// Sets every key that a layout has: layout_of() of the result is the layout. Paths do not hold a
// custom schedule, so it goes into Config::custom_schedule, and its file is the caller's to write.
void set_layout(Config& config, const spec::Layout& layout);

// What messages call the fields of a layout: the paths of the keys.
const spec::LayoutNames& layout_paths();

}  // namespace trireme::config
