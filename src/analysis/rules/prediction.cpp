// SPDX-License-Identifier: Apache-2.0
// What remains when the other rules have spoken: a machine file whose rates are wrong, or a
// difference that no rule explains.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "analysis/predicted_terms.h"
#include "analysis/rules/rule.h"
#include "obs/terminal/number_text.h"

namespace trireme::analysis {
namespace {

using obs::RankColumn;

constexpr double max_drift = 0.1;        // between the first and the last third of the windows
constexpr double max_rank_spread = 0.1;  // between ranks
constexpr double min_slower = 1.1;       // steps that became slower by less are not reported

double explained_share(const Findings& others) {
  double share = 0;
  for (const Finding& finding : others) share += finding.share;
  return std::min(share, 0.95);
}

double third_of(const RankView& view, RankColumn column, bool is_last) {
  const size_t third = std::max<size_t>(1, view.windows() / 3);
  const WindowRange range =
      is_last ? WindowRange{view.windows() - third, view.windows()} : WindowRange{0, third};
  std::vector<double> values;
  for (size_t rank = 0; rank < view.ranks(); ++rank) {
    values.push_back(median(values_in(view.column(rank, column), range)));
  }
  return median(std::move(values));
}

bool is_contended(const RankView& view) {
  std::vector<size_t> ranks(view.ranks());
  std::iota(ranks.begin(), ranks.end(), size_t{0});
  return is_contended(view, ranks, {0, view.windows()});
}

// The measured seconds of a step without what other findings cost.
double remaining_seconds(const Facts& facts, const Findings& others) {
  return facts.fall.measured_seconds * (1 - explained_share(others));
}

}  // namespace

Findings find_stale_machine_file(const Facts& facts, const Findings& others) {
  const RankView& view = facts.short_windows;
  const PredictedTerms predicted(facts.run, 0);
  const auto seconds = predicted.seconds();
  const auto compute = predicted.compute();
  const double band = number_in(facts.run.prediction, "band").value_or(0);
  if (!facts.fall.is_measured || view.windows() < 3 || !seconds || !compute || band <= 0 ||
      *compute <= 0) {
    return {};
  }
  const double step_ratio = remaining_seconds(facts, others) / *seconds;
  std::vector<double> ratios;
  for (const std::vector<size_t>& stage : view.stages()) {
    for (const size_t rank : stage) {
      ratios.push_back(median(view.column(rank, RankColumn::compute_seconds)));
    }
  }
  const auto [low, high] = std::minmax_element(ratios.begin(), ratios.end());
  const double compute_ratio = median(ratios) / *compute;
  const double limit = std::log(1 + band);
  const bool is_off = std::abs(std::log(step_ratio)) > limit &&
                      std::abs(std::log(compute_ratio)) > limit &&
                      (step_ratio > 1) == (compute_ratio > 1);
  const bool is_steady = std::abs(third_of(view, RankColumn::compute_seconds, true) /
                                      third_of(view, RankColumn::compute_seconds, false) -
                                  1) < max_drift;
  const bool is_common = view.stages().size() > 1 || *high < (1 + max_rank_spread) * *low;
  if (!is_off || !is_steady || !is_common || (step_ratio > 1 && is_contended(view))) return {};
  const double factor = compute_ratio > 1 ? compute_ratio : 1 / compute_ratio;
  Finding finding{.cause = Cause::stale_machine_file,
                  .share = std::abs(step_ratio - 1) / std::max(step_ratio, 1.0)};
  finding.title = fmt::format(
      "the machine file describes another machine: compute is {:.2f} times as {} as predicted on "
      "all ranks, from the first step on",
      factor, compute_ratio > 1 ? "slow" : "fast");
  const auto machine = facts.run.prediction.find("machine");
  finding.evidence = {
      fmt::format("compute of a step: {} predicted, {} measured ({} to {} over ranks)",
                  seconds_text(*compute), seconds_text(median(ratios)), seconds_text(*low),
                  seconds_text(*high)),
      fmt::format("step: {} predicted from {}, {} measured; band {}", seconds_text(*seconds),
                  machine != facts.run.prediction.end() && machine->is_string()
                      ? machine->get<std::string>()
                      : "the machine file",
                  seconds_text(facts.fall.measured_seconds), percent_text(band))};
  finding.advice =
      "measure this machine with trireme calibrate, and name the file in "
      "system.machine";
  return {std::move(finding)};
}

Findings find_unknown(const Facts& facts, const Findings& others) {
  const RankView& view = facts.windows;
  if (!facts.fall.is_measured || view.windows() < 3) return {};
  Findings found;
  std::vector<double> steps;
  for (size_t window = 0; window < view.windows(); ++window) {
    std::vector<double> of_ranks;
    for (size_t rank = 0; rank < view.ranks(); ++rank) {
      of_ranks.push_back(view.at(window, rank, RankColumn::step_seconds));
    }
    steps.push_back(median(std::move(of_ranks)));
  }
  const auto rise = find_rise(steps, min_slower, 4);
  const double explained = explained_share(others);
  if (rise && is_long(view, rise->after_range)) {
    const double share = (rise->after - rise->before) / rise->after;
    const double residual = share - explained;
    if (residual > std::max(1 - 1 / min_slower, share / 2)) {
      Finding finding{.share = residual,
                      .first_step = view.window(rise->after_range.begin).first_step};
      finding.title = fmt::format("steps take {} longer since step {}: unknown, residual {}",
                                  percent_text(rise->after / rise->before - 1),
                                  obs::grouped(finding.first_step), percent_text(residual));
      finding.evidence.push_back(fmt::format(
          "step: {} before, {} since", seconds_text(rise->before), seconds_text(rise->after)));
      for (const RankColumn column :
           {RankColumn::compute_seconds, RankColumn::gap_seconds, RankColumn::cpu_share}) {
        finding.evidence.push_back(fmt::format(
            "{}: {:.4g} in the first third of the windows, {:.4g} in the last", name_of(column),
            third_of(view, column, false), third_of(view, column, true)));
      }
      finding.advice =
          "compare traces of a step from before and after: train --trace-steps; look "
          "for other programs on the nodes";
      found.push_back(std::move(finding));
      return found;
    }
  }
  const PredictedTerms predicted(facts.run, 0);
  const auto seconds = predicted.seconds();
  const double band = number_in(facts.run.prediction, "band").value_or(0);
  if (!seconds || band <= 0) return found;
  const double remaining = remaining_seconds(facts, others);
  if (remaining < (1 + band) * *seconds) return found;
  Finding finding{.share = (remaining - *seconds) / facts.fall.measured_seconds};
  finding.title = fmt::format("steps take {} longer than predicted: unknown, residual {}",
                              percent_text(facts.fall.measured_seconds / *seconds - 1),
                              percent_text(finding.share));
  finding.evidence.push_back(
      fmt::format("step: {} predicted, {} measured; band {}", seconds_text(*seconds),
                  seconds_text(facts.fall.measured_seconds), percent_text(band)));
  if (is_contended(view)) {
    finding.evidence.push_back(fmt::format(
        "ranks have {} of their CPU cores while they compute {} of the time: other programs may "
        "compete",
        percent_text(view.typical(RankColumn::cpu_share)),
        percent_text(view.typical(RankColumn::compute_seconds) /
                     view.typical(RankColumn::step_seconds))));
  }
  finding.advice =
      "train --trace-steps 10:12 shows what every rank does in a step; trireme "
      "calibrate measures the machine alone";
  found.push_back(std::move(finding));
  return found;
}

}  // namespace trireme::analysis
