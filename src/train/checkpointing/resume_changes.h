// SPDX-License-Identifier: Apache-2.0
// Differences between a saved run and the run that resumes it, as text.
#pragma once

#include <string>
#include <vector>

#include "base/text/json_fwd.h"
#include "spec/plan.h"

namespace trireme::train {

// Returns the settings of the plans that decide bits and differ; empty: none. The sizes of batches
// and the blocks that fell back to bf16 follow from the step, and are not compared.
std::string changes_of_identity(const spec::Plan& was, const spec::Plan& is);

// Appends a line for every leaf that is in only one of the two or has another value.
void list_changes(const std::string& path, const base::Json& was, const base::Json& is,
                  std::vector<std::string>& lines);

// Returns the configuration `is` without keys that `was` lacks and that have their default: the
// build that wrote `was` did not have them.
base::Json without_added_keys(const base::Json& was, const base::Json& is,
                              const base::Json& defaults);

// Differences between the states of two runs (RunCheckpoints::run_state), one per line.
struct StateChanges {
  std::vector<std::string> data, batch, config;
  bool has_config = false;  // false: the saved state does not record its configuration
};
StateChanges changes_of_state(const base::Json& saved, const base::Json& own);

}  // namespace trireme::train
