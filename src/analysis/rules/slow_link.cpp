// SPDX-License-Identifier: Apache-2.0
// Transfers along one axis have become slow, or are far slower than predicted, while ranks arrive
// as evenly as before. The wait of the rank that arrives last is the transfer.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "analysis/predicted_terms.h"
#include "analysis/rules/rule.h"

namespace trireme::analysis {
namespace {

using obs::RankColumn;

constexpr double min_share = 0.03;  // of the step
constexpr double min_rise = 1.2;    // of the transfer
constexpr double max_compute_rise = 0.1;
constexpr double max_own_rise = 0.25;   // of what ranks do without waiting, relative to it
constexpr double predicted_factor = 3;  // slower than predicted, if there is no earlier time
constexpr double min_predicted_share = 0.1;

const char* words_of(WaitAxis axis) {
  switch (axis) {
    case WaitAxis::tp:
      return "tensor parallel collectives";
    case WaitAxis::cp:
      return "context parallel transfers";
    case WaitAxis::ep:
      return "expert parallel exchanges";
    case WaitAxis::data:
      return "data parallel collectives";
    case WaitAxis::pp:
      return "pipeline messages";
    default:
      return "the gather that closes a step";
  }
}

const char* advice_for(WaitAxis axis) {
  switch (axis) {
    case WaitAxis::tp:
      return "check the links inside the node (trireme calibrate measures them); keep tp within a "
             "node";
    case WaitAxis::data:
      return "check cables and counters of the network cards of these nodes; trireme calibrate "
             "measures collectives alone. More gradient accumulation (training.global_batch_size) "
             "or parallelism.prefetch hides more of them";
    default:
      return "check cables and counters of the network cards of these nodes; trireme calibrate "
             "measures collectives alone";
  }
}

// By window: the least wait of a group's ranks, the largest over the groups.
struct Transfers {
  std::vector<double> seconds;
  std::vector<size_t> group;  // the slowest in the last windows
};
Transfers transfers_along(const RankView& view, WaitAxis axis) {
  Transfers found;
  double worst = -1;
  for (const std::vector<size_t>& group : view.groups(axis)) {
    std::vector<double> least;
    for (size_t window = 0; window < view.windows(); ++window) {
      double wait = view.at(window, group.front(), wait_column(axis));
      for (const size_t rank : group) {
        wait = std::fmin(wait, view.at(window, rank, wait_column(axis)));
      }
      least.push_back(std::isnan(wait) ? 0 : wait);
    }
    const double late = median(values_in(least, {view.windows() / 2, view.windows()}));
    if (late <= worst) continue;
    worst = late;
    found = {std::move(least), group};
  }
  return found;
}

// What changed on the ranks from the windows before the range to those in it, the largest of all.
struct OwnRise {
  double seconds = 0;  // that a rank spends without waiting
  double compute = 0;  // relative
};
OwnRise largest_own_rise(const RankView& view, const WindowRange& after) {
  const WindowRange before{0, after.begin};
  OwnRise largest;
  for (size_t rank = 0; rank < view.ranks(); ++rank) {
    std::vector<double> own;
    for (size_t window = 0; window < view.windows(); ++window) {
      own.push_back(own_seconds(view, window, rank));
    }
    const std::vector<double> compute = view.column(rank, RankColumn::compute_seconds);
    largest.seconds =
        std::max(largest.seconds, median(values_in(own, after)) - median(values_in(own, before)));
    largest.compute =
        std::max(largest.compute,
                 median(values_in(compute, after)) / median(values_in(compute, before)) - 1);
  }
  return largest;
}

Finding finding_of(const RankView& view, WaitAxis axis, const Transfers& transfers,
                   const WindowRange& range, double expected, const char* expected_words) {
  const double now = median(values_in(transfers.seconds, range));
  const double step = step_in(view, range);
  Finding finding{.cause = Cause::slow_link,
                  .share = (now - expected) / step,
                  .first_step = view.window(range.begin).first_step};
  finding.title = fmt::format("{} take {} a step {}, {} {}", words_of(axis), seconds_text(now),
                              steps_text(view, range), seconds_text(expected), expected_words);
  std::string members;
  for (size_t i = 0; i < transfers.group.size() && i < 8; ++i) {
    members += fmt::format("{}{}", i == 0 ? "" : ", ", transfers.group[i]);
  }
  if (transfers.group.size() > 8) members += ", ...";
  finding.evidence = {
      fmt::format("all ranks of the group ({}) wait at least {} along {}, also the last to arrive",
                  members, seconds_text(now), name_of(axis))};
  finding.advice = advice_for(axis);
  return finding;
}

std::optional<Finding> slow_along(const Facts& facts, WaitAxis axis) {
  const RankView& view = facts.short_windows;
  const Transfers transfers = transfers_along(view, axis);
  if (transfers.group.empty()) return {};
  const auto rise = find_rise(transfers.seconds, min_rise, 3);
  if (rise && is_long(view, rise->after_range)) {
    const double share = (rise->after - rise->before) / step_in(view, rise->after_range);
    const OwnRise own = largest_own_rise(view, rise->after_range);
    // A machine on which everything has become slower has no slow link.
    if (share > min_share && own.compute < max_compute_rise &&
        own.seconds < max_own_rise * (rise->after - rise->before)) {
      Finding finding =
          finding_of(view, axis, transfers, rise->after_range, rise->before, "before");
      finding.evidence.push_back(fmt::format("what ranks do without waiting grew by {} at most",
                                             seconds_text(own.seconds)));
      return finding;
    }
    return {};
  }
  // Slow from the first step on: only a prediction tells.
  const PredictedTerms predicted(facts.run, 0);
  const auto seconds =
      predicted.at(axis == WaitAxis::closing ? "rest" : std::string(name_of(axis)));
  const auto compute = predicted.compute();
  const auto band = number_in(facts.run.prediction, "band");
  if (!seconds || !compute || !band || axis == WaitAxis::closing || axis == WaitAxis::pp) return {};
  const WindowRange all{0, view.windows()};
  const double now = median(transfers.seconds), step = step_in(view, all);
  const double measured = view.typical(RankColumn::compute_seconds);
  const bool is_compute_as_predicted = std::abs(measured / *compute - 1) < *band;
  if (!is_compute_as_predicted || now < predicted_factor * *seconds ||
      now - *seconds < min_predicted_share * step) {
    return {};
  }
  return finding_of(view, axis, transfers, all, *seconds, "were predicted");
}

}  // namespace

Findings find_slow_link(const Facts& facts) {
  Findings found;
  if (facts.short_windows.windows() < 6) return found;
  for (size_t i = 0; i < static_cast<size_t>(WaitAxis::count); ++i) {
    auto finding = slow_along(facts, static_cast<WaitAxis>(i));
    if (!finding) continue;
    // A slow network delays several axes; one finding names the worst.
    if (!found.empty() && found.front().share >= finding->share) continue;
    found = {std::move(*finding)};
  }
  return found;
}

}  // namespace trireme::analysis
