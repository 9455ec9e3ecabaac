// SPDX-License-Identifier: Apache-2.0
// Trouble of hosts: batches that come late, checkpoints that block steps, pauses.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "analysis/rules/rule.h"
#include "obs/terminal/number_text.h"

namespace trireme::analysis {
namespace {

using obs::RankColumn;

constexpr double min_data_share = 0.03, min_save_share = 0.03, min_pause_share = 0.02;
constexpr double min_save_seconds = 0.5;
constexpr double max_variation = 0.4;  // of steps without pauses
constexpr size_t min_pauses = 3;
double seconds_or_zero(double value) { return std::isnan(value) ? 0 : value; }

// By window: the largest share of a step in which a rank's device waited for a batch.
struct DataWaits {
  std::vector<double> shares;
  std::map<size_t, size_t> worst;  // rank -> windows in which it waited longest
};
DataWaits data_waits(const RankView& view) {
  DataWaits waits;
  for (size_t window = 0; window < view.windows(); ++window) {
    double largest = 0;
    size_t worst = 0;
    for (size_t rank = 0; rank < view.ranks(); ++rank) {
      const double share = seconds_or_zero(view.at(window, rank, RankColumn::data_seconds)) /
                           view.at(window, rank, RankColumn::step_seconds);
      if (share > largest) {
        largest = share;
        worst = rank;
      }
    }
    waits.shares.push_back(largest);
    if (largest > min_data_share) ++waits.worst[worst];
  }
  return waits;
}

}  // namespace

Findings find_data_starvation(const Facts& facts) {
  const RankView& view = facts.short_windows;
  const DataWaits waits = data_waits(view);
  const auto range = persistent_range(waits.shares, min_data_share, {3, 4});
  if (!range || !is_long(view, *range)) return {};
  const double share = median(values_in(waits.shares, *range));
  Finding finding{.cause = Cause::data_starvation,
                  .share = share,
                  .first_step = view.window(range->begin).first_step};
  finding.title = fmt::format("steps wait for data: {} of a step {}", percent_text(share),
                              steps_text(view, *range));
  finding.evidence = {fmt::format("a rank waits {} of {} for its next batch",
                                  seconds_text(share * step_in(view, *range)),
                                  seconds_text(step_in(view, *range)))};
  size_t all = 0;
  for (const auto& [rank, windows] : waits.worst) all += windows;
  for (const auto& [rank, windows] : waits.worst) {
    if (view.ranks() < 2 || 10 * windows < 9 * all) continue;
    finding.rank = static_cast<int>(rank);
    finding.evidence.push_back(
        fmt::format("rank {} waits longest in {} of {} windows", rank, windows, all));
  }
  finding.advice =
      "read data from a faster or a local disk (training.dataset_path), or build a data set of "
      "tokens first (trireme data build)";
  return {std::move(finding)};
}

Findings find_slow_save(const Facts& facts) {
  const RankView& view = facts.records;
  double saved = 0, all = 0;
  int64_t first_step = -1;
  size_t records = 0;  // with a save that took its time
  for (size_t window = 0; window < view.windows(); ++window) {
    double longest = 0, step = 0;
    for (size_t rank = 0; rank < view.ranks(); ++rank) {
      longest = std::max(longest, seconds_or_zero(view.at(window, rank, RankColumn::save_seconds)));
      step = std::max(step, seconds_or_zero(view.at(window, rank, RankColumn::step_seconds)));
    }
    saved += longest * view.window(window).steps;
    all += step * view.window(window).steps;
    if (longest <= min_save_share * step) continue;
    ++records;
    if (first_step < 0) first_step = view.window(window).first_step;
  }
  double exposed = 0, total = 0;
  for (const PhaseSpan& span : facts.run.phases) {
    if (span.attempt != facts.run.attempt) continue;
    exposed += span.seconds[static_cast<size_t>(obs::Phase::exposed_save)];
    for (const obs::Phase phase : {obs::Phase::useful, obs::Phase::straggler, obs::Phase::data_wait,
                                   obs::Phase::exposed_save}) {
      total += span.seconds[static_cast<size_t>(phase)];
    }
  }
  double share = all > 0 ? saved / all : 0;
  if (total > 0) share = std::max(share, exposed / total);
  // One checkpoint of a short run is no rule.
  if (share < min_save_share || records < 2 || std::max(saved, exposed) < min_save_seconds) {
    return {};
  }
  Finding finding{.cause = Cause::slow_save, .share = share, .first_step = first_step};
  finding.title = fmt::format("checkpoints take {} of the time of steps", percent_text(share));
  std::vector<double> stalls, durations;
  for (const obs::Event& event : facts.run.events) {
    if (event.kind != obs::EventKind::checkpoint || event.attempt != facts.run.attempt) continue;
    if (event.data.contains("stall_seconds") && event.data["stall_seconds"].is_number()) {
      stalls.push_back(event.data["stall_seconds"].get<double>());
    }
    if (event.data.contains("durable_seconds") && event.data["durable_seconds"].is_number()) {
      durations.push_back(event.data["durable_seconds"].get<double>());
    }
  }
  if (!stalls.empty()) {
    finding.evidence.push_back(fmt::format("{} checkpoints; steps stood still for {} (median)",
                                           stalls.size(), seconds_text(median(stalls))));
  }
  if (!durations.empty()) {
    finding.evidence.push_back(
        fmt::format("a checkpoint is durable after {} (median)", seconds_text(median(durations))));
  }
  finding.evidence.push_back(fmt::format("steps waited {} in all for checkpoints",
                                         seconds_text(std::max(saved, exposed))));
  finding.advice =
      "save less often (checkpoint.interval, or checkpoint.interval_seconds), or to a faster disk "
      "(checkpoint.folder)";
  return {std::move(finding)};
}

Findings find_host_pauses(const Facts& facts) {
  const RankView& view = facts.records;
  double lost = 0, all = 0, longest = 0;
  size_t pauses = 0;
  int64_t first_step = -1;
  std::vector<double> others;  // by record: without the longest step
  for (size_t window = 0; window < view.windows(); ++window) {
    const double steps = view.window(window).steps;
    std::vector<double> of_ranks;
    for (size_t rank = 0; rank < view.ranks(); ++rank) {
      of_ranks.push_back(view.at(window, rank, RankColumn::step_seconds));
    }
    const double step = median(std::move(of_ranks));
    all += step * steps;
    const double pause = pause_in(view, window);
    others.push_back(steps_beside_longest(view, window));
    if (pause <= 0) continue;
    ++pauses;
    lost += pause;
    longest = std::max(longest, pause);
    if (first_step < 0) first_step = view.window(window).first_step;
  }
  if (pauses < min_pauses || lost < min_pause_share * all) return {};
  // Where all steps vary, as on a machine that other programs use, long ones are no pauses.
  const double typical_step = median(others);
  if (spread(others) > max_variation * typical_step) return {};
  Finding finding{.cause = Cause::host_pauses, .share = lost / all, .first_step = first_step};
  // A pause shows on the ranks that compute at that moment, not only on the host that paused: no
  // rank is blamed.
  finding.title = fmt::format("{} paused {} times for up to {} since step {}",
                              view.ranks() == 1 ? "the host" : "hosts", pauses,
                              seconds_text(longest), obs::grouped(first_step));
  finding.evidence = {
      fmt::format("single steps take up to {}, others {}", seconds_text(longest + typical_step),
                  seconds_text(typical_step)),
      fmt::format("{} of {} records have such a step; neither data nor checkpoints explain it",
                  pauses, view.windows())};
  finding.advice =
      "look for what stops the processes at these moments: swapping, a suspended container, other "
      "programs with a higher priority, or clock changes of the host";
  return {std::move(finding)};
}

}  // namespace trireme::analysis
