// SPDX-License-Identifier: Apache-2.0
// A configuration as spec::Layout, and back.
#pragma once

#include "config/apply.h"
#include "config/config.h"
#include "spec/layout/layout.h"
#include "spec/layout/rules.h"

namespace trireme::config {

// Reads the schedule file, if one is named; `folder` is that of the configuration's file. Reports a
// file or a name of a schedule that cannot be used.
void read_schedule(Config& config, const std::filesystem::path& folder, Report& report);

// Fills in open keys (-1, logical_dp = 0, reduce = "auto", the batch) for solved(), and reports
// every rule that degrees, model and batch break together.
void solve_layout(Config& config, int world, const std::optional<SavedSums>& saved, Report& report);

// Reports a file, or overrides, that give both precision.recipe and training.dtype, which is its
// alias, with different values.
void check_recipe_alias(const std::vector<Entry>& entries, const std::vector<Key>& keys,
                        Report& report);

// Returns the layout of the keys, with the same fields open. REQUIRES: a known schedule name.
// precision.recipe = "auto" is read as bf16.
spec::Layout layout_of(const Config& config);
spec::Workload workload_of(const Config& config);
// The same without open fields. REQUIRES: a configuration that solved() returned.
spec::Layout settled_layout(const Config& config);

// Sets every key of a layout, so that layout_of() returns it. A custom schedule is stored in
// Config::custom_schedule; the caller must write its file.
void set_layout(Config& config, const spec::Layout& layout);

// Returns the names of a layout's fields in messages: the paths of the keys.
const spec::LayoutNames& layout_paths();

}  // namespace trireme::config
