// SPDX-License-Identifier: Apache-2.0
// A rank that computes more slowly than the other ranks of its stage, relative to its work; and,
// where a stage has one rank, a rank that computes more slowly than it did before.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>

#include "analysis/rules/rule.h"

namespace trireme::analysis {
namespace {

using obs::RankColumn;

// Rules of straggler detection: small deviations need many windows, large ones few.
struct SlowRule {
  double limit;
  Persistence persistence;
};
constexpr SlowRule patient = {0.03, {8, 10}};
constexpr SlowRule quick = {0.12, {3, 3}};
// A deviation must be so many standard errors above zero.
constexpr double min_errors = 4;
// What a rank must exceed if the others of its stage lack processors, too.
constexpr double min_contended_excess = 0.5;
// A rank that has become slower by so much, while the others have not.
constexpr double min_own_rise = 1.12;

// The compute seconds of every window, relative to the rank's work.
std::vector<double> paced(const RankView& view, size_t rank) {
  std::vector<double> seconds;
  for (size_t window = 0; window < view.windows(); ++window) {
    const double work = view.at(window, rank, RankColumn::work);
    seconds.push_back(view.at(window, rank, RankColumn::compute_seconds) / (work > 0 ? work : 1));
  }
  return seconds;
}

// By window: how much slower the rank is than the median of the others in its stage. A difference
// is left out as far as a pause explains it, since a pause of all hosts hits some ranks while they
// compute, and others while they wait.
std::vector<double> excess_of(const RankView& view, const std::vector<size_t>& stage, size_t rank) {
  const std::vector<double> own = paced(view, rank);
  std::vector<std::vector<double>> others;
  for (const size_t other : stage) {
    if (other != rank) others.push_back(paced(view, other));
  }
  std::vector<double> excess;
  for (size_t window = 0; window < view.windows(); ++window) {
    std::vector<double> of_others;
    for (const std::vector<double>& other : others) of_others.push_back(other[window]);
    const double expected = median(std::move(of_others));
    const double difference = own[window] - expected;
    const double pause = pause_in(view, window) / view.window(window).steps;
    excess.push_back((difference - std::clamp(difference, -pause, pause)) / expected);
  }
  return excess;
}

struct Slowness {
  const RankView* view = nullptr;
  size_t rank = 0;
  WindowRange range;
  double excess = 0;  // the median
  size_t hits = 0;    // windows above the limit
};

std::optional<Slowness> slowness(const RankView& view, const std::vector<size_t>& stage,
                                 size_t rank, const SlowRule& rule) {
  const std::vector<double> excess = excess_of(view, stage, rank);
  const auto range = persistent_range(excess, rule.limit, rule.persistence);
  if (!range || !is_long(view, *range)) return {};
  const std::vector<double> within = values_in(excess, *range);
  const double middle = median(within);
  const double error = spread(within) / std::sqrt(static_cast<double>(within.size()));
  if (middle < rule.limit || middle < min_errors * error) return {};
  // Ranks that compete for processors are slow by turns, and unfairly so.
  std::vector<size_t> others;
  std::copy_if(stage.begin(), stage.end(), std::back_inserter(others),
               [&](size_t other) { return other != rank; });
  if (middle < min_contended_excess && is_contended(view, others, *range)) return {};
  const auto hits =
      std::count_if(within.begin(), within.end(), [&](double value) { return value > rule.limit; });
  return Slowness{&view, rank, *range, middle, static_cast<size_t>(hits)};
}

Finding finding_of(const Slowness& slow, const std::vector<size_t>& stage) {
  const RankView& view = *slow.view;
  std::vector<double> own, others, late;
  for (size_t window = slow.range.begin; window < slow.range.end; ++window) {
    own.push_back(view.at(window, slow.rank, RankColumn::compute_seconds));
    for (const size_t rank : stage) {
      if (rank != slow.rank) others.push_back(view.at(window, rank, RankColumn::compute_seconds));
    }
  }
  const double step = step_in(view, slow.range);
  Finding finding{.cause = Cause::slow_rank,
                  .share = std::max(0.0, median(own) * slow.excess / (1 + slow.excess) / step),
                  .rank = static_cast<int>(slow.rank),
                  .stage = view.coord(slow.rank).pp,
                  .first_step = view.window(slow.range.begin).first_step};
  finding.title = fmt::format("{} computes {} slower than the other ranks of its stage {}",
                              view.rank_text(slow.rank), percent_text(slow.excess),
                              steps_text(view, slow.range));
  finding.evidence = {
      fmt::format("compute of a step: {} on rank {}, {} (median) on the other {} of stage {}",
                  seconds_text(median(own)), slow.rank, seconds_text(median(others)),
                  stage.size() - 1, view.coord(slow.rank).pp),
      fmt::format("slower in {} of {} windows of {} steps, relative to its work", slow.hits,
                  slow.range.size(), static_cast<int64_t>(view.window(slow.range.begin).steps))};
  finding.advice = fmt::format(
      "look for other programs, a lower clock or a faulty device on rank {}'s node{}; if they do "
      "not explain it, exclude the node",
      slow.rank, view.node(slow.rank).empty() ? "" : " " + view.node(slow.rank));
  return finding;
}

// The median over the other ranks of a stage-independent change.
double others_rise(const RankView& view, size_t rank, const WindowRange& after) {
  std::vector<double> rises;
  for (size_t other = 0; other < view.ranks(); ++other) {
    if (other == rank) continue;
    const std::vector<double> values = view.column(other, RankColumn::compute_seconds);
    rises.push_back(median(values_in(values, after)) / median(values_in(values, {0, after.begin})));
  }
  return median(std::move(rises));
}

// A rank that is alone in its stage and has become slower.
std::optional<Finding> slower_than_before(const RankView& view, size_t rank) {
  const auto rise = find_rise(paced(view, rank), min_own_rise, 3);
  if (!rise || view.ranks() < 2 || !is_long(view, rise->after_range)) return {};
  const double ratio = rise->after / rise->before;
  const double others = others_rise(view, rank, rise->after_range);
  if (!(others - 1 < (ratio - 1) / 3)) return {};
  Finding finding{.cause = Cause::slow_rank,
                  .share = (rise->after - rise->before) / step_in(view, rise->after_range),
                  .rank = static_cast<int>(rank),
                  .stage = view.coord(rank).pp,
                  .first_step = view.window(rise->after_range.begin).first_step};
  finding.title = fmt::format("{} computes {} slower than before {}", view.rank_text(rank),
                              percent_text(ratio - 1), steps_text(view, rise->after_range));
  finding.evidence = {
      fmt::format("compute of a step on rank {}: {} before, {} since", rank,
                  seconds_text(rise->before), seconds_text(rise->after)),
      fmt::format("compute of the other ranks changed by {}", percent_text(others - 1))};
  finding.advice = fmt::format(
      "look for other programs, a lower clock or a faulty device on rank {}'s node", rank);
  return finding;
}

}  // namespace

Findings find_slow_rank(const Facts& facts) {
  Findings found;
  for (const std::vector<size_t>& stage : facts.windows.stages()) {
    if (stage.size() < 2) {
      if (auto finding = slower_than_before(facts.short_windows, stage.front())) {
        found.push_back(std::move(*finding));
      }
      continue;
    }
    std::optional<Slowness> worst;
    for (const size_t rank : stage) {
      for (const auto& slow : {slowness(facts.windows, stage, rank, patient),
                               slowness(facts.short_windows, stage, rank, quick)}) {
        if (slow && (!worst || slow->excess > worst->excess)) worst = slow;
      }
    }
    if (worst) found.push_back(finding_of(*worst, stage));
  }
  return found;
}

}  // namespace trireme::analysis
