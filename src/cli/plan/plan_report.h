// SPDX-License-Identifier: Apache-2.0
// PlanReport: an answer of the planner with everything that is shown of it, as data. The text and
// the JSON are two functions of it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/text/json_fwd.h"
#include "cli/plan/plan_job.h"
#include "plan/search/answer.h"
#include "plan/price/run_cost.h"

namespace trireme::cli {

// Of the whole job. Utilisation by the formula of published figures (train/report/throughput.h); with
// experts by the FLOPs of what runs.
struct PlanRates {
  double tokens = 0, mfu = 0, hfu = 0;
};

// Bytes by phase of a run, of the rank that needs the most.
struct PlanPhases {
  int64_t start = 0, load = 0, step = 0;  // on the device
  int64_t save_host = 0;                  // of host memory, for checkpoints
};

struct MemoryItem {
  std::string name, meaning;
  int64_t bytes = 0;
};

// A layout, and what follows from it for this question.
struct PlannedLayout {
  plan::Proposal proposal;
  PlanRates rates;
  // The rank that needs the most: as in the engine's plan, or as priced where there is none.
  std::vector<MemoryItem> items;
  int64_t bytes = 0;                 // their sum
  bool fits = false;                 // in the memory of a GPU
  std::optional<PlanPhases> phases;  // where the engine runs it
  std::optional<plan::RunCost> run;  // where the question has a number of tokens

  double seconds() const { return proposal.confirmed.seconds; }
};
PlannedLayout planned_layout(const PlanQuestion&, const plan::Proposal&);
// 0: the layout has no such item.
int64_t bytes_of(const PlannedLayout&, std::string_view item);

struct PlannedChange {
  std::string what;
  PlannedLayout layout;
};

struct PlanReport {
  PlanQuestion question;
  std::optional<PlannedLayout> asked;  // the layout that the question came with
  std::vector<PlannedLayout> better;   // faster ones of the same program
  std::optional<PlannedLayout> best, nearest, textbook;
  std::vector<PlannedLayout> passed_over, others, smaller;
  std::vector<PlannedChange> changes;
  plan::Answer answer;
};
PlanReport plan_report(const PlanQuestion&, plan::Answer,
                       const std::optional<plan::Proposal>& asked,
                       const std::vector<plan::Proposal>& better);

// Tokens a second of one GPU, over those of one GPU under the answer. REQUIRES: there is an answer.
double throughput_share(const PlanReport&, const PlannedLayout&);
// "--grad-dtype bf16: 12.3 s a step, 74.1 GiB: tp 8 sp, ..."
std::string change_text(const PlannedChange&);
// "memory: at least 84.6 GiB of 75.1 GiB", or the rule that is broken.
std::string rejection_text(const PlanQuestion&, const plan::Rejected&);

std::string answer_text(const PlanReport&, bool is_long);
base::Json answer_json(const PlanReport&);

// A layout with its name on the first line: what does not fit is called so first.
std::string layout_text(const PlanQuestion&, const std::string& label, const PlannedLayout&);

// Two layouts, term by term.
std::string comparison_text(const PlanQuestion&, const PlannedLayout& a, const PlannedLayout& b);
base::Json comparison_json(const PlanQuestion&, const PlannedLayout& a, const PlannedLayout& b);

}  // namespace trireme::cli
