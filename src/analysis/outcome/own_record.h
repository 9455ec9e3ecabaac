// SPDX-License-Identifier: Apache-2.0
// What a run recorded about its own steps and files: skipped steps, checkpoints, exports, attempts
// that failed. Rules and the outcome are computed from it.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "analysis/outcome/divergence.h"
#include "analysis/run_record.h"

namespace trireme::analysis {

// Returns the events of the last attempt, its start included; all events if no start is recorded.
std::span<const obs::Event> last_attempt(const RunRecord&);
// Returns the last event of this kind in the last attempt; null if there is none.
const obs::Event* last_of(const RunRecord&, obs::EventKind);
// Returns whether the last attempt came to its last step, or to the one at which it was asked to
// stop.
bool has_own_end(const RunRecord&);
// Returns whether a verdict of the last attempt is about processes that had come to their own end:
// a launcher gives one about their exit codes.
bool is_after_own_end(const RunRecord&, const obs::Event& verdict);
// Returns the first step that the last attempt computes.
int64_t first_step_of_attempt(const RunRecord&);

// The steps of the whole run that were skipped, without those by which the loss scale fell.
struct SkippedSteps {
  std::vector<int64_t> steps;
  int64_t of = 0;                  // recorded steps
  std::vector<std::string> texts;  // of their events
};
SkippedSteps skipped_steps(const RunRecord&);

// Returns whether the numbers of the last attempt have diverged, by its losses and skipped steps.
std::optional<DivergenceFound> divergence_of(const RunRecord&);

struct SavedState {
  int64_t newest = -1;              // step of the newest checkpoint; -1: none is known
  std::vector<std::string> failed;  // texts of the last attempt's failed saves
  bool is_unsaved = false;          // the last step should have been saved and was not
  std::string export_problem;       // why the last export failed; empty: it did not
};
SavedState saved_state(const RunRecord&);

// Returns a text for each failure after which the run went on: earlier attempts, and ranks that the
// last one lost: "attempt 1 ended at step 12: rank 1 was killed by signal 9".
std::vector<std::string> survived_failures(const RunRecord&);

}  // namespace trireme::analysis
