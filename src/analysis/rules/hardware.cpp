// SPDX-License-Identifier: Apache-2.0
// What the device and the host report: clocks, memory.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "analysis/predicted_terms.h"
#include "analysis/rules/rule.h"
#include "obs/terminal/number_text.h"

namespace trireme::analysis {
namespace {

using obs::RankColumn;

// A device under load runs near its highest clock; power capping lowers it by some percent.
constexpr double max_clock_loss = 0.08;
constexpr double full_memory = 0.95;
constexpr double host_growth = 0.3;
constexpr double min_host_growth_bytes = 1 << 30;

// Reasons of NVML (nvmlClocksEventReasons): the bits that are no fault are idle, application
// settings and synchronised boost.
struct ThrottleReason {
  uint64_t bit;
  const char* words;
};
constexpr ThrottleReason throttle_reasons[] = {{0x4, "power cap"},
                                               {0x8, "hardware slowdown"},
                                               {0x20, "temperature"},
                                               {0x40, "temperature (hardware)"},
                                               {0x80, "external power brake"}};

std::string reasons_text(double bits) {
  std::string text;
  if (!std::isfinite(bits) || bits < 0) return text;
  for (const ThrottleReason& reason : throttle_reasons) {
    if ((static_cast<uint64_t>(bits) & reason.bit) == 0) continue;
    text += (text.empty() ? "" : ", ") + std::string(reason.words);
  }
  return text;
}

// Products at full speed bring a GPU to its power cap: alone, that is no fault.
bool is_only_power_cap(double bits) { return reasons_text(bits) == throttle_reasons[0].words; }

bool is_slower_than_predicted(const Facts& facts) {
  const std::optional<double>& seconds = facts.fall.predicted_seconds;
  const double band = number_in(facts.run.prediction, "band").value_or(0);
  return seconds && facts.fall.measured_seconds > (1 + band) * *seconds;
}

// Returns how far the clock is below its maximum; at a power cap that slows no step down beyond the
// prediction, how far below the median of the other ranks' clocks.
double clock_loss(const Facts& facts, size_t window, size_t rank) {
  const RankView& view = facts.records;
  const double clock = view.at(window, rank, RankColumn::clock_hz);
  const double bits = view.at(window, rank, RankColumn::throttle_reasons);
  if (reasons_text(bits).empty()) return 0;
  if (!is_only_power_cap(bits) || is_slower_than_predicted(facts)) {
    return 1 - clock / view.at(window, rank, RankColumn::max_clock_hz);
  }
  std::vector<double> others;
  for (size_t other = 0; other < view.ranks(); ++other) {
    if (other != rank) others.push_back(view.at(window, other, RankColumn::clock_hz));
  }
  return others.empty() ? 0 : 1 - clock / median(std::move(others));
}

std::optional<Finding> throttled(const Facts& facts, size_t rank) {
  const RankView& view = facts.records;
  std::vector<double> losses, reasons;
  for (size_t window = 0; window < view.windows(); ++window) {
    losses.push_back(clock_loss(facts, window, rank));
    reasons.push_back(view.at(window, rank, RankColumn::throttle_reasons));
  }
  const size_t needed = std::min<size_t>(8, std::max<size_t>(3, view.windows() / 4));
  const auto range = persistent_range(losses, max_clock_loss, {needed - needed / 5, needed});
  if (!range || !is_long(view, *range)) return {};
  const double loss = median(values_in(losses, *range));
  const double clock = median(values_in(view.column(rank, RankColumn::clock_hz), *range));
  const double compute = median(values_in(view.column(rank, RankColumn::compute_seconds), *range));
  Finding finding{.cause = Cause::throttled_clock,
                  .share = loss * std::min(1.0, compute / step_in(view, *range)),
                  .rank = static_cast<int>(rank),
                  .stage = view.coord(rank).pp,
                  .first_step = view.window(range->begin).first_step};
  finding.title = fmt::format("the clock of {} is {} below its maximum {}", view.rank_text(rank),
                              percent_text(loss), steps_text(view, *range));
  const size_t last = range->end - 1;
  finding.evidence = {fmt::format("clock {:.0f} MHz of {:.0f} MHz; reasons of the driver: {}",
                                  clock * 1e-6,
                                  view.at(last, rank, RankColumn::max_clock_hz) * 1e-6,
                                  reasons_text(median(values_in(reasons, *range))))};
  const double celsius = view.at(last, rank, RankColumn::temperature_celsius);
  const double watts = view.at(last, rank, RankColumn::power_watts);
  if (std::isfinite(celsius) && std::isfinite(watts)) {
    finding.evidence.push_back(fmt::format("{:.0f} degrees, {:.0f} W", celsius, watts));
  }
  finding.advice =
      "check cooling and power limit of the device (nvidia-smi -q -d PERFORMANCE,POWER), or "
      "exclude it";
  return finding;
}

}  // namespace

Findings find_throttled_clock(const Facts& facts) {
  Findings found;
  if (!facts.records.has(RankColumn::clock_hz)) return found;
  for (size_t rank = 0; rank < facts.records.ranks(); ++rank) {
    if (auto finding = throttled(facts, rank)) found.push_back(std::move(*finding));
  }
  std::stable_sort(found.begin(), found.end(),
                   [](const Finding& a, const Finding& b) { return a.share > b.share; });
  if (found.size() <= 1) return found;
  found.front().evidence.push_back(
      fmt::format("{} ranks are throttled; this one the most", found.size()));
  found.resize(1);
  return found;
}

Findings find_memory_near_limit(const Facts& facts) {
  const RankView& view = facts.records;
  if (view.windows() == 0) return {};
  const size_t last = view.windows() - 1;
  Findings found;
  double worst = full_memory;
  for (size_t rank = 0; rank < view.ranks(); ++rank) {
    const double used = view.at(last, rank, RankColumn::memory_bytes);
    const double limit = view.at(last, rank, RankColumn::memory_limit_bytes);
    if (!(limit > 0) || !(used / limit > worst)) continue;
    worst = used / limit;
    Finding finding{.cause = Cause::memory_near_limit,
                    .rank = static_cast<int>(rank),
                    .stage = view.coord(rank).pp};
    finding.title = fmt::format("the device memory of {} is {} full", view.rank_text(rank),
                                percent_text(used / limit));
    finding.evidence = {fmt::format("{} of {} are in use",
                                    obs::bytes_text(static_cast<int64_t>(used)),
                                    obs::bytes_text(static_cast<int64_t>(limit)))};
    finding.advice =
        "leave a margin: a smaller training.local_batch_size, activation_checkpoint.mode, or a "
        "higher parallelism.zero_stage; trireme plan shows what each saves";
    found = {std::move(finding)};
  }
  for (size_t rank = 0; rank < view.ranks() && found.empty(); ++rank) {
    const std::vector<double> bytes = view.column(rank, RankColumn::host_bytes);
    if (bytes.size() < 20) break;
    size_t rises = 0;
    for (size_t i = 1; i < bytes.size(); ++i) rises += bytes[i] > bytes[i - 1] ? 1 : 0;
    const double growth = bytes.back() - bytes[bytes.size() / 5];
    const bool is_growing = 5 * rises >= 4 * (bytes.size() - 1) &&
                            growth > host_growth * bytes[bytes.size() / 5] &&
                            growth > min_host_growth_bytes;
    if (!is_growing) continue;
    Finding finding{.cause = Cause::memory_near_limit, .rank = static_cast<int>(rank)};
    finding.title = fmt::format("the host memory of {} grows: {} more since step {}",
                                view.rank_text(rank), obs::bytes_text(static_cast<int64_t>(growth)),
                                obs::grouped(view.window(bytes.size() / 5).last_step));
    finding.evidence = {fmt::format("{} resident now; it rose in {} of {} records",
                                    obs::bytes_text(static_cast<int64_t>(bytes.back())), rises,
                                    bytes.size() - 1)};
    finding.advice =
        "stop the run with a checkpoint before the host runs out of memory, and "
        "report what grows (trireme doctor shows the libraries)";
    found.push_back(std::move(finding));
  }
  return found;
}

Findings find_needless_recompute(const Facts& facts) {
  const base::Json& prediction = facts.run.prediction;
  if (!prediction.is_object() || !prediction.contains("memory")) return {};
  const std::string mode =
      prediction.contains("recompute") && prediction.at("recompute").is_string()
          ? prediction.at("recompute").get<std::string>()
          : "none";
  const auto without = number_in(prediction, "memory_without_recompute_bytes");
  const auto limit = number_in(prediction.at("memory"), "limit_bytes");
  const auto with = number_in(prediction.at("memory"), "total_bytes");
  constexpr double margin = 0.9;
  if (mode == "none" || !without || !limit || *limit <= 0 || *without > margin * *limit) return {};
  const double model = number_in(prediction, "model_flops").value_or(0);
  const double hardware = number_in(prediction, "hardware_flops").value_or(0);
  const double share = hardware > 0 ? std::max(0.0, 1 - model / hardware) : 0;
  double compute = 0;
  if (facts.fall.is_measured && facts.records.windows() > 0) {
    compute = facts.records.typical(RankColumn::compute_seconds) / facts.fall.measured_seconds;
  }
  Finding finding{.cause = Cause::needless_recompute,
                  .share = share * std::clamp(compute, 0.0, 1.0)};
  finding.title = fmt::format("{} recompute is not needed: the run fits without it", mode);
  finding.evidence = {fmt::format("{} are predicted without recompute, of {} (with it {})",
                                  obs::bytes_text(static_cast<int64_t>(*without)),
                                  obs::bytes_text(static_cast<int64_t>(*limit)),
                                  with ? obs::bytes_text(static_cast<int64_t>(*with)) : "unknown"),
                      fmt::format("recompute is {} of the FLOPs of a step", percent_text(share))};
  finding.advice = "set activation_checkpoint.mode = \"none\", or \"selective\" to keep a margin";
  return {std::move(finding)};
}

}  // namespace trireme::analysis
