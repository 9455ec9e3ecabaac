// SPDX-License-Identifier: Apache-2.0
#include "train/record/step_lines.h"

#include <algorithm>
#include <utility>

namespace trireme::train {
namespace {

constexpr double max_wait_seconds = 0.1;
constexpr size_t max_lines = 256;

}  // namespace

std::vector<obs::Metric> signal_metrics(const engine::StepSignals& s, int64_t total_tokens) {
  std::vector<obs::Metric> metrics = {{"loss_metrics/global_avg_loss", s.mean_loss},
                                      {"loss_metrics/min", s.loss_min},
                                      {"loss_metrics/median", s.loss_median},
                                      {"loss_metrics/max", s.loss_max},
                                      {"grad_norm", static_cast<double>(s.grad_norm)},
                                      {"lr", static_cast<double>(s.learning_rate)},
                                      {"clip_limit", static_cast<double>(s.clip_limit)},
                                      {"skipped", s.was_skipped ? 1.0 : 0.0},
                                      {"clipped", s.was_clipped ? 1.0 : 0.0},
                                      {"tokens/trained", static_cast<double>(s.tokens)},
                                      {"tokens/masked", static_cast<double>(s.masked)},
                                      {"tokens/padding", static_cast<double>(s.padding)},
                                      {"tokens", static_cast<double>(total_tokens)}};
  // The first step of an engine does not know the update before it.
  if (s.index > 0) metrics.push_back({"update_norm", static_cast<double>(s.update_norm)});
  if (s.loss_scale > 0) metrics.push_back({"loss_scale", static_cast<double>(s.loss_scale)});
  return metrics;
}

StepLines::StepLines(obs::Clock wall_clock) : clock_(std::move(wall_clock)) {}

double StepLines::add(int64_t step, const engine::StepSignals& signals, int64_t total_tokens) {
  lines_.push_back({step, clock_(), signal_metrics(signals, total_tokens)});
  return lines_.back().time;
}

std::span<const obs::Metric> StepLines::extend(int64_t step, std::span<const obs::Metric> metrics) {
  if (lines_.empty() || lines_.back().step != step) lines_.push_back({step, clock_(), {}});
  std::vector<obs::Metric>& line = lines_.back().metrics;
  for (const obs::Metric& metric : metrics) {
    const auto has_name = [&](const obs::Metric& other) { return other.name == metric.name; };
    if (std::none_of(line.begin(), line.end(), has_name)) line.push_back(metric);
  }
  return line;
}

bool StepLines::is_due() const {
  return lines_.size() >= max_lines ||
         (!lines_.empty() && clock_() - lines_.front().time >= max_wait_seconds);
}

std::span<const obs::TimedMetrics> StepLines::lines() {
  views_.clear();
  for (const Line& line : lines_) {
    views_.push_back({.step = line.step, .time = line.time, .metrics = line.metrics});
  }
  return views_;
}

void StepLines::clear() { lines_.clear(); }

}  // namespace trireme::train
