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

std::string answer_text(const PlanQuestion&, const plan::Answer&,
                        const std::optional<plan::Proposal>& asked, bool is_long);
base::Json answer_json(const PlanQuestion&, const plan::Answer&,
                       const std::optional<plan::Proposal>& asked);

// Two layouts, term by term.
std::string comparison_text(const PlanQuestion&, const plan::Proposal& a, const plan::Proposal& b);
base::Json comparison_json(const PlanQuestion&, const plan::Proposal& a, const plan::Proposal& b);

}  // namespace trireme::cli
