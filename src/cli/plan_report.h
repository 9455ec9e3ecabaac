// SPDX-License-Identifier: Apache-2.0
// Answers of the planner for people and for programs.
#pragma once

#include <string>

#include "base/json_fwd.h"
#include "cli/plan_job.h"
#include "plan/answer.h"

namespace trireme::cli {

// Of the whole job. Utilisation by the formula of published figures (train/throughput.h); with
// experts by the FLOPs of what runs.
struct PlanRates {
  double tokens = 0, mfu = 0, hfu = 0;
};
PlanRates plan_rates(const PlanQuestion&, const plan::Proposal&);
// Whether the memory of a processor holds what the rank that needs the most takes.
bool fits(const PlanQuestion&, const plan::Proposal&);

// Bytes by phase of a run, of the rank that needs the most.
struct PlanPhases {
  double start = 0, load = 0, step = 0;  // on the device
  double save_host = 0;                  // of host memory, for checkpoints
};
// REQUIRES: the engine runs it.
PlanPhases plan_phases(const PlanQuestion&, const plan::Proposal&);

// The layout that the question came with, and faster ones of the same program.
struct PlanAsked {
  std::optional<plan::Proposal> layout;
  std::vector<plan::Candidate> better;
};

std::string answer_text(const PlanQuestion&, const plan::Answer&, const PlanAsked&, bool is_long);
base::Json answer_json(const PlanQuestion&, const plan::Answer&, const PlanAsked&);

// Two layouts, term by term.
std::string comparison_text(const PlanQuestion&, const plan::Proposal& a, const plan::Proposal& b);
base::Json comparison_json(const PlanQuestion&, const plan::Proposal& a, const plan::Proposal& b);

}  // namespace trireme::cli
