// SPDX-License-Identifier: Apache-2.0
// Outcome: what became of a run, in one kind, one colour, one sentence and one advice. diagnose()
// computes it from the files of the run; the last lines of `train`, the end event, `runs`, `watch`,
// `diagnose`, `report`, the board and /metrics all show it, so that they never contradict each
// other or the exit code.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/text/json_fwd.h"

namespace trireme::analysis {

enum class OutcomeKind : uint8_t {
  unknown,    // too little is recorded to judge it
  running,    // its numbers have not diverged
  healthy,    // it came to its end, and what should be saved is saved
  too_short,  // likewise, in too few steps to judge its speed
  stopped,    // on request, and the step is saved
  unsaved,    // its steps were run, but the last state or the weights were not written
  diverged,   // its numbers diverged, whether it goes on or not
  failed,     // it ended because of an error
  died,       // its process ended without a record
  count
};
std::string_view name_of(OutcomeKind);

// The colour of the lamp. Off: the run was stopped on request, or nothing is known.
enum class Severity : uint8_t { off, good, warning, bad };
std::string_view name_of(Severity);

struct Outcome {
  OutcomeKind kind = OutcomeKind::unknown;
  Severity severity = Severity::off;
  std::string headline;  // "done, step 40 of 40, as fast as predicted"
  std::string advice;    // what to do; empty: nothing
};
base::Json to_json(const Outcome&);

}  // namespace trireme::analysis
