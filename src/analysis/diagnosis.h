// SPDX-License-Identifier: Apache-2.0
// diagnose(): predicted against measured, term by term, and the causes of the difference in order,
// each with its evidence and what to change. It is a pure function of the run's files.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "analysis/outcome/outcome.h"
#include "analysis/run_record.h"
#include "analysis/waterfall.h"
#include "base/text/json.h"

namespace trireme::analysis {

enum class Cause : uint8_t {
  slow_rank,
  slow_link,
  stage_imbalance,
  data_starvation,
  host_pauses,
  throttled_clock,
  needless_recompute,
  memory_near_limit,
  dead_rank,
  slow_save,
  stale_machine_file,
  drifting_numbers,  // in 8 bits
  diverged,          // by the loss or by skipped steps: Divergence
  skipped_steps,     // without those by which the loss scale fell
  unsaved_steps,     // of a run that has ended
  missing_weights,   // the last export failed
  reported_error,    // an event of severity error
  earlier_failures,  // after which the run went on
  unknown,           // slower than predicted, or slower than before, and no rule explains it
  count
};
std::string_view name_of(Cause);  // "slow_rank"

struct Finding {
  Cause cause = Cause::unknown;
  std::string title;  // one sentence: "rank 3 computes 21 % slower than the others since step 120"
  double share = 0;   // of the step's time that it costs; 0: not a matter of time
  int rank = -1;      // the rank at fault, if one is
  int stage = -1;     // along pp
  int64_t first_step = -1;            // since when
  std::vector<std::string> evidence;  // figures, one line each
  std::string advice;                 // what to change, with the key or the command
};

struct Diagnosis {
  RunState state = RunState::unknown;
  Outcome outcome;
  std::string lamp;      // the name of the outcome's severity: "good", "warning", "bad", "off"
  std::string sentence;  // the outcome's headline
  std::vector<Finding> findings;  // the largest first; empty: nothing is wrong
  Waterfall waterfall;
};

Diagnosis diagnose(const RunRecord&);
base::Json to_json(const Diagnosis&);
base::Json to_json(const std::vector<Finding>&);

}  // namespace trireme::analysis
