// SPDX-License-Identifier: Apache-2.0
// The two runs of verify(): a job on one rank, and on the ranks of a layout.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "train/verify/verify.h"

namespace trireme::train {

// The kinds of bytes that a step sends, for sums, comparisons and tables.
struct TrafficKind {
  const char* name;
  int64_t spec::TrafficTable::*bytes;
};
std::span<const TrafficKind> step_traffic_kinds();

// The results of one rank after verify_steps steps.
struct RankRecord {
  std::vector<engine::StepReport> steps;
  std::vector<std::vector<std::string>> samples;                       // by step
  std::vector<std::vector<engine::RouterUpdate::LayerStats>> routers;  // by step
  std::vector<std::string> names;                                      // of parameters
  // By parameter: at the start; gradients of the first step; at the end.
  std::vector<std::vector<float>> initial, grads, weights;
  spec::TrafficTable counted;  // of the steps, without reads of parameters by name
  spec::MemoryTable measured;
  int64_t ledger_peak = 0;
};

// How one parameter of a rank differs from that of the single-rank run; see verify.h.
struct Deviation {
  double initial = 0, grad = 0, weights = 0;
  double grad_factor = 1;    // by which the right gradient fits best
  double grad_residual = 0;  // the error after multiplication by it
  bool same_bits = true;     // of gradients and weights as the twin
};

// A rank of a layout, compared.
struct RankResult {
  VerifyRank table;
  int64_t ledger_peak = 0;
  std::vector<engine::StepReport> steps;
  std::vector<std::vector<std::string>> samples;
  std::vector<std::vector<engine::RouterUpdate::LayerStats>> routers;
  std::vector<Deviation> params;  // in the order of RankRecord::names
};

struct LayoutResult {
  std::vector<RankResult> ranks;  // empty: the run failed
  std::string failure;            // the reason
};

struct VerifyRun {
  const spec::ModelSpec& model;
  const spec::Plan& plan;
  const spec::Backend& backend;
  const VerifyJob& job;
  std::function<void()> step_done;
};

// REQUIRES: the plan is for one rank. Throws what the engine throws.
RankRecord run_one_rank(const VerifyRun&);
// `reference` is the fp32 rank; `twin` the one rank with the layout's recipe.
LayoutResult run_layout(const VerifyRun&, const RankRecord& reference, const RankRecord& twin,
                        const VerifyHooks&);

}  // namespace trireme::train
