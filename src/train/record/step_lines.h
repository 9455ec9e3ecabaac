// SPDX-License-Identifier: Apache-2.0
// StepLines: the metrics of steps that have ended and are not written yet. Every step has one line
// in metrics.jsonl; those of several steps are written together.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/step/step_signals.h"
#include "obs/clock.h"
#include "obs/sinks/metric_sink.h"

namespace trireme::train {

// Returns the metrics of every step. `total_tokens`: of the run so far, this step included.
std::vector<obs::Metric> signal_metrics(const engine::StepSignals&, int64_t total_tokens);

class StepLines {
 public:
  explicit StepLines(obs::Clock wall_clock = obs::wall_seconds);

  // Returns the time of the line.
  double add(int64_t step, const engine::StepSignals&, int64_t total_tokens);
  // Adds the metrics of a logged step to its line; creates the line if there is none. Metrics that
  // the line has already stay as they are. Returns all metrics of the line.
  std::span<const obs::Metric> extend(int64_t step, std::span<const obs::Metric> metrics);
  // Is it time to write? Lines wait for a tenth of a second at most, as long as steps end.
  bool is_due() const;
  bool is_empty() const { return lines_.empty(); }
  // Returns the lines in the order of their steps; valid until the next call of any function.
  std::span<const obs::TimedMetrics> lines();
  void clear();

 private:
  struct Line {
    int64_t step = 0;
    double time = 0;
    std::vector<obs::Metric> metrics;
  };

  obs::Clock clock_;
  std::vector<Line> lines_;
  std::vector<obs::TimedMetrics> views_;
};

}  // namespace trireme::train
