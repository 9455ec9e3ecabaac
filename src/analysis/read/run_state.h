// SPDX-License-Identifier: Apache-2.0
// Whether a run is going on, and if not, how it ended.
#pragma once

#include <filesystem>

#include "analysis/run_record.h"

namespace trireme::analysis {

// Judges by the end event of the last attempt, otherwise by owner.json and the age of its lease at
// `now`. REQUIRES: folder, events, last_step and total_steps of the record are filled in. Adds to
// its problems.
RunState state_of(RunRecord& run, double now);

// Returns whether a process holds the folder at `now`, by owner.json alone: far cheaper than
// read_run(), and true for a moment longer when a run ends.
bool is_running(const std::filesystem::path& folder, double now);

}  // namespace trireme::analysis
