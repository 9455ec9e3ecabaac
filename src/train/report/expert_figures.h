// SPDX-License-Identifier: Apache-2.0
// Figures of the routers of a step: how even the loads of experts and ranks are, what was dropped,
// and which expert is the busiest.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "obs/sinks/metric_sink.h"
#include "spec/plan.h"
#include "train/setup/rank.h"

namespace trireme::train {

// One layer in one step, over all ranks.
struct ExpertFigures {
  int64_t block = 0;                // counted from 0
  double expert_max_over_mean = 0;  // rows of the busiest expert
  double rank_max_over_mean = 0;    // rows of the busiest rank along ep
  int64_t busiest_expert = 0, busiest_rank = 0;
  int64_t idle_experts = 0;  // without a row
  double entropy = 0;        // of the mean scores, relative to that of equal ones
  double dropped = 0;        // share of pairs without a row
  double lost = 0;           // share of tokens without any row
  double budget_used = 0;    // rows of the fullest block of rows, relative to the block
  double aux = 0, z = 0;     // terms of the loss, with their weights
  double largest_bias = 0;   // absolute value
};

ExpertFigures expert_figures(const engine::RouterUpdate::LayerStats&, const spec::ModelSpec&,
                             const spec::Plan&, const spec::Backend&);

// Returns those of all layers, in order, on every rank. Waits for the device. Collective.
std::vector<ExpertFigures> expert_figures(engine::Engine&, Rank&, const spec::ModelSpec&,
                                          const spec::Backend&);

// Metrics of all layers together, and of each.
struct ExpertMetrics {
  std::vector<std::string> names;
  std::vector<double> values;
  std::vector<obs::Metric> metrics() const;  // views of the names
};
ExpertMetrics expert_metrics(const std::vector<ExpertFigures>&);

// Returns the log line: the busiest layer, with its expert and rank, and what was dropped.
std::string experts_line(const std::vector<ExpertFigures>&);

}  // namespace trireme::train
