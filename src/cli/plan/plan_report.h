// SPDX-License-Identifier: Apache-2.0
// PlanReport: the answer of the planner and all figures that are shown, as data. Text and JSON are
// functions of it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/text/json_fwd.h"
#include "cli/plan/plan_job.h"
#include "plan/price/run_cost.h"
#include "plan/search/answer.h"

namespace trireme::cli {

// Rates of the whole job. MFU uses the formula of published figures (train/report/throughput.h).
struct PlanRates {
  double tokens = 0, mfu = 0, hfu = 0;
};

// Memory in the phases of a run, for the rank with the highest total.
struct PlanPhases {
  int64_t start = 0, load = 0, step = 0;  // on the device
  int64_t save_host = 0;                  // of host memory, for checkpoints
  int64_t copies_host = 0;                // likewise, for copies that outlive a process
  int64_t kept_host = 0;     // likewise, of another rank's state, where there are several nodes
  int64_t buffers_host = 0;  // likewise, for batches and signals of steps
};

struct MemoryItem {
  std::string name, meaning;
  int64_t bytes = 0;
};

// A layout with its rates, memory and cost for this question.
struct PlannedLayout {
  plan::Proposal proposal;
  plan::Price price;  // with the confirmed seconds, so that all figures of a layout agree
  PlanRates rates;
  // Memory of the rank with the highest total: from the engine's plan, or from the price if there
  // is no plan.
  std::vector<MemoryItem> items;
  int64_t bytes = 0;                 // their sum
  bool fits = false;                 // in the memory of a GPU
  std::optional<PlanPhases> phases;  // if the engine can run it
  std::optional<plan::RunCost> run;  // if the question has a number of tokens

  double seconds() const { return proposal.confirmed.seconds; }
};
PlannedLayout planned_layout(const PlanQuestion&, const plan::Proposal&);
// Returns how much longer a step takes with sums over ranks in the fixed order than with the
// library's (comm.fixed_order = false), in seconds; below 0 if it is shorter. Nothing if the sums
// are the library's.
std::optional<double> fixed_order_seconds(const PlanQuestion&, const PlannedLayout&);
// Returns 0 if the layout has no such item.
int64_t bytes_of(const PlannedLayout&, std::string_view item);

struct PlannedChange {
  std::string what;
  PlannedLayout layout;
};

// The best layout with one precision, or the reason why there is none.
struct PlannedPrecision {
  spec::Precision precision = spec::Precision::bf16;
  std::optional<PlannedLayout> best;
  std::string reason;
};

struct PlanReport {
  PlanQuestion question;
  std::optional<PlannedLayout> asked;  // the layout of the question
  std::vector<PlannedLayout> better;   // faster layouts of the same program
  std::optional<PlannedLayout> best, nearest, textbook;
  std::vector<PlannedLayout> passed_over, others, smaller;
  std::vector<PlannedPrecision> precisions;  // if several were allowed
  std::vector<PlannedChange> changes;
  plan::Answer answer;
};
PlanReport plan_report(const PlanQuestion&, plan::Answer,
                       const std::optional<plan::Proposal>& asked,
                       const std::vector<plan::Proposal>& better);

// Searches the layouts and returns all figures of the answer. `progress` is called before every
// layout that is examined; it may throw to end the search. Throws ConfigError if the layout of the
// question is not possible.
PlanReport plan_answer(const PlanQuestion&, const plan::PlanProgress& progress);

// Returns the throughput per GPU, relative to that of the answer. REQUIRES: there is an answer.
double throughput_share(const PlanReport&, const PlannedLayout&);
// Returns where the answer departs from the textbook's layout, and which terms that changes most.
// REQUIRES: there are both.
std::vector<std::string> departures_of(const PlanReport&);
// "--grad-dtype bf16: 12.3 s a step, 74.1 GiB: tp 8 sp, ..."
std::string change_text(const PlannedChange&);
// "memory: at least 84.6 GiB of 75.1 GiB", or the violated rule.
std::string rejection_text(const PlanQuestion&, const plan::Rejected&);

// Returns the configuration for `trireme train` that runs the layout. Throws ConfigError if the
// engine cannot run it, or the question names no file of its model.
std::string plan_config(const PlanQuestion&, const plan::Proposal&);

std::string answer_text(const PlanReport&, bool is_long);
base::Json answer_json(const PlanReport&);
base::Json planned_json(const PlanQuestion&, const PlannedLayout&);

// Formats a layout behind `label`; a layout that does not fit starts with "does not fit".
std::string layout_text(const PlanQuestion&, const std::string& label, const PlannedLayout&);

// Compares two layouts term by term.
std::string comparison_text(const PlanQuestion&, const PlannedLayout& a, const PlannedLayout& b);
base::Json comparison_json(const PlanQuestion&, const PlannedLayout& a, const PlannedLayout& b);

}  // namespace trireme::cli
