// SPDX-License-Identifier: Apache-2.0
// Ending: what became of a run whose attempt came to its last step or to a stop, by its summary.
// The end event, the exit code and the last lines follow from it; readers of the run's folder find
// the same (analysis::Outcome).
#pragma once

#include <string>
#include <string_view>

#include "analysis/outcome/outcome.h"
#include "train/report/train_summary.h"

namespace trireme::train {

struct Ending {
  analysis::OutcomeKind kind = analysis::OutcomeKind::healthy;  // or stopped, unsaved, diverged
  std::string problem;  // why it counts as failed; empty if it does not
};
Ending ending_of(const TrainSummary&);

// Returns the `reason` of the end event: "done", "stopped", "failed" or "diverged".
std::string_view reason_of(const Ending&);

}  // namespace trireme::train
