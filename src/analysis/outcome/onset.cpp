// SPDX-License-Identifier: Apache-2.0
#include "analysis/outcome/onset.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <deque>
#include <limits>
#include <map>
#include <vector>

#include "analysis/outcome/own_record.h"
#include "analysis/statistics.h"
#include "base/text/json.h"
#include "obs/terminal/number_text.h"

namespace trireme::analysis {
namespace {

constexpr double unlimited = std::numeric_limits<double>::infinity();
constexpr size_t ahead_steps = 9;

std::vector<double> copy_of(std::span<const double> values) {
  return {values.begin(), values.end()};
}

// Returns the limit of every step by the lowest median so far.
std::vector<double> loss_limits(std::span<const double> losses) {
  constexpr size_t window = 32;
  constexpr double max_noise = 6, min_share = 0.02;
  std::vector<double> limits(losses.size(), unlimited);
  double lowest = unlimited;
  for (size_t i = 1; i < losses.size(); ++i) {
    limits[i] = limits[i - 1];
    const size_t count = std::min(i, window);
    const std::vector<double> before = copy_of(losses.subspan(i - count, count));
    const double middle = median(before);
    if (!(middle < lowest)) continue;
    lowest = middle;
    limits[i] = middle + std::max(max_noise * spread(before), min_share * std::abs(middle));
  }
  return limits;
}

// Norms beyond the limit do not move it, so it stands still once they stay beyond it.
std::vector<double> norm_limits(std::span<const double> norms) {
  constexpr size_t window = 128;
  constexpr double max_ratio = 10;
  std::vector<double> limits;
  std::deque<double> in_range;
  for (const double norm : norms) {
    limits.push_back(in_range.empty() ? unlimited
                                      : max_ratio * median({in_range.begin(), in_range.end()}));
    if (!std::isfinite(norm) || norm > limits.back()) continue;
    in_range.push_back(norm);
    if (in_range.size() > window) in_range.pop_front();
  }
  return limits;
}

std::vector<double> limits_of(Signal signal, std::span<const double> values) {
  if (signal == Signal::loss) return loss_limits(values);
  if (signal == Signal::norm) return norm_limits(values);
  return std::vector<double>(values.size(), 0);
}

std::string onset_text(Signal signal, int64_t step, double value, double limit) {
  const std::string at = obs::grouped(step);
  if (signal == Signal::skipped) return fmt::format("steps were skipped from step {} on", at);
  return fmt::format("the {} left its range at step {} ({}, the range ended at {:.4g})",
                     signal == Signal::loss ? "loss" : "gradient norm", at,
                     std::isfinite(value) ? fmt::format("{:.4g}", value) : "not finite", limit);
}

// The part of a series up to `last`, with what is not finite as infinity.
struct SeriesPart {
  std::vector<int64_t> steps;
  std::vector<double> values;
};
SeriesPart part_until(const RunRecord& run, const char* tag, int64_t last) {
  SeriesPart part;
  const auto found = run.series.find(tag);
  if (found == run.series.end()) return part;
  for (size_t i = 0; i < found->second.steps.size() && found->second.steps[i] <= last; ++i) {
    part.steps.push_back(found->second.steps[i]);
    part.values.push_back(found->second.values[i]);
  }
  return part;
}

// Returns the first alarm of a block that has not fallen back, without those of steps that a later
// attempt has computed again.
std::optional<Onset> first_alarm(const RunRecord& run) {
  std::map<int64_t, const obs::Event*> alarms;  // by block
  for (const obs::Event& event : run.events) {
    if (event.kind == obs::EventKind::start) {
      std::erase_if(alarms, [&](const auto& alarm) { return alarm.second->step > event.step; });
    }
    if (event.kind != obs::EventKind::numerics || event.step > run.last_step) continue;
    const auto what = event.data.find("what");
    if (what == event.data.end()) continue;
    const auto block = event.data.find("block");
    if (*what == "alarm" && block != event.data.end() && block->is_number_integer()) {
      alarms.try_emplace(block->get<int64_t>(), &event);
    }
    const auto blocks = event.data.find("blocks");
    if (*what != "fallback" || blocks == event.data.end()) continue;
    std::erase_if(alarms, [&](const auto& alarm) {
      return std::find(blocks->begin(), blocks->end(), base::Json(alarm.first)) != blocks->end();
    });
  }
  const obs::Event* first = nullptr;
  for (const auto& [block, event] : alarms) {
    if (first == nullptr || event->step < first->step) first = event;
  }
  if (first == nullptr) return {};
  return Onset{first->step, fmt::format("8-bit numbers left their range at step {}: {}",
                                        obs::grouped(first->step), first->text)};
}

}  // namespace

std::optional<Onset> left_range(Signal signal, std::span<const int64_t> steps,
                                std::span<const double> values) {
  std::vector<double> finite;
  for (const double value : values) finite.push_back(std::isfinite(value) ? value : unlimited);
  const std::vector<double> limits = limits_of(signal, finite);
  const auto is_out = [&](size_t i) {
    const size_t count = std::min(ahead_steps, finite.size() - i);
    return median(copy_of(std::span(finite).subspan(i, count))) > limits[i];
  };
  size_t first = finite.size();
  while (first > 0 && is_out(first - 1)) --first;
  while (first < finite.size() && !(finite[first] > limits[first])) ++first;
  if (first == finite.size()) return {};
  return Onset{steps[first], onset_text(signal, steps[first], values[first], limits[first])};
}

std::optional<Onset> find_onset(const RunRecord& run) {
  std::optional<Onset> earliest = first_alarm(run);
  const auto consider = [&earliest](const std::optional<Onset>& onset) {
    if (onset && (!earliest || onset->step < earliest->step)) earliest = onset;
  };
  const SeriesPart losses = part_until(run, "loss_metrics/global_avg_loss", run.last_step);
  consider(left_range(Signal::loss, losses.steps, losses.values));
  const SeriesPart norms = part_until(run, "grad_norm", run.last_step);
  consider(left_range(Signal::norm, norms.steps, norms.values));
  SeriesPart skips = part_until(run, "skipped", run.last_step);
  const std::vector<int64_t> counted = skipped_steps(run).steps;
  for (size_t i = 0; i < skips.steps.size(); ++i) {
    skips.values[i] = std::ranges::binary_search(counted, skips.steps[i]) ? 1 : 0;
  }
  consider(left_range(Signal::skipped, skips.steps, skips.values));
  return earliest;
}

Onset onset_of_divergence(const RunRecord& run) {
  if (std::optional<Onset> onset = find_onset(run)) return *std::move(onset);
  const std::optional<DivergenceFound> found = divergence_of(run);
  const int64_t step = found ? found->first_step : first_step_of_attempt(run);
  return {step,
          fmt::format("it is dated to step {}: no signal shows it sooner", obs::grouped(step))};
}

}  // namespace trireme::analysis
