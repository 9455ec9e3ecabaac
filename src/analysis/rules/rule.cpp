// SPDX-License-Identifier: Apache-2.0
#include "analysis/rules/rule.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "obs/terminal/number_text.h"

namespace trireme::analysis {
namespace {

// A pause makes one step so many times as long as the others.
constexpr double min_pause_ratio = 3, min_pause_seconds = 0.02;

double or_zero(double value) { return std::isnan(value) ? 0 : value; }

constexpr double min_range_seconds = 2;

// A process that computes has this share of its processors at least.
constexpr double min_cpu_share = 0.8;

// A rise in units of the windows' spread, and of the standard error of a difference of means: the
// best of many splits of pure noise differs by up to five such errors.
constexpr double min_spreads = 2.5, min_errors_of_rise = 8;

}  // namespace

std::string steps_text(const RankView& view, const WindowRange& range) {
  const int64_t first = view.window(range.begin).first_step;
  if (is_present(view, range)) {
    return range.begin == 0 ? "in all measured steps"
                            : fmt::format("since step {}", obs::grouped(first));
  }
  return fmt::format("from step {} to {}", obs::grouped(first),
                     obs::grouped(view.window(range.end - 1).last_step));
}

bool is_present(const RankView& view, const WindowRange& range) {
  return range.end + 2 >= view.windows();
}

bool is_long(const RankView& view, const WindowRange& range) {
  double seconds = 0;
  for (size_t window = range.begin; window < range.end; ++window) {
    seconds += view.window(window).seconds;
  }
  return seconds >= min_range_seconds &&
         (is_present(view, range) || 10 * range.size() >= view.windows());
}

std::string percent_text(double share) {
  const double percent = 100 * share;
  return std::abs(percent) < 10 ? fmt::format("{:.1f} %", percent)
                                : fmt::format("{:.0f} %", percent);
}

std::string seconds_text(double seconds) {
  if (seconds < 1e-3) return fmt::format("{:.0f} us", 1e6 * seconds);
  return seconds < 1 ? fmt::format("{:.3g} ms", 1e3 * seconds) : fmt::format("{:.3g} s", seconds);
}

double step_in(const RankView& view, const WindowRange& range) {
  std::vector<double> values;
  for (size_t window = range.begin; window < range.end; ++window) {
    for (size_t rank = 0; rank < view.ranks(); ++rank) {
      values.push_back(view.at(window, rank, obs::RankColumn::step_seconds));
    }
  }
  return median(std::move(values));
}

double own_seconds(const RankView& view, size_t window, size_t rank) {
  double sum = 0;
  for (const obs::RankColumn column :
       {obs::RankColumn::compute_seconds, obs::RankColumn::gap_seconds,
        obs::RankColumn::data_seconds, obs::RankColumn::save_seconds}) {
    sum += or_zero(view.at(window, rank, column));
  }
  return sum;
}

bool is_contended(const RankView& view, const std::vector<size_t>& ranks,
                  const WindowRange& range) {
  std::vector<double> ratios;
  for (const size_t rank : ranks) {
    if (!view.is_cpu(rank)) continue;
    for (size_t window = range.begin; window < range.end; ++window) {
      // A paused process has no CPU time, either; that is no competition.
      const double pause = pause_in(view, window) / view.window(window).steps;
      const double step = view.at(window, rank, obs::RankColumn::step_seconds);
      const double compute = view.at(window, rank, obs::RankColumn::compute_seconds);
      ratios.push_back(view.at(window, rank, obs::RankColumn::cpu_share) * step /
                       std::max(compute - pause, 0.1 * compute));
    }
  }
  return median(std::move(ratios)) < min_cpu_share;
}

double steps_beside_longest(const RankView& view, size_t window) {
  const double steps = view.window(window).steps;
  double step = 0, longest = 0;
  for (size_t rank = 0; rank < view.ranks(); ++rank) {
    step = std::max(step, or_zero(view.at(window, rank, obs::RankColumn::step_seconds)));
    longest = std::max(longest, or_zero(view.at(window, rank, obs::RankColumn::max_step_seconds)));
  }
  return steps > 1 ? std::max(0.0, (step * steps - longest) / (steps - 1)) : longest;
}

double pause_in(const RankView& view, size_t window) {
  const double steps = view.window(window).steps;
  double longest = 0, explained = 0;
  for (size_t rank = 0; rank < view.ranks(); ++rank) {
    const auto at = [&](obs::RankColumn column) { return or_zero(view.at(window, rank, column)); };
    longest = std::max(longest, at(obs::RankColumn::max_step_seconds));
    explained = std::max(
        explained, steps * (at(obs::RankColumn::data_seconds) + at(obs::RankColumn::save_seconds)));
  }
  const double others = steps_beside_longest(view, window);
  const double pause = longest - others;
  const bool is_pause = pause > min_pause_ratio * others && pause > min_pause_seconds &&
                        explained < pause / 2 && !view.window(window).has_break;
  return is_pause ? pause : 0;
}

std::optional<Rise> find_rise(const std::vector<double>& values, double min_ratio,
                              size_t min_windows) {
  // The split with the least sum of absolute distances from the two medians would cost a sort for
  // each; sums of squares find the same step in linear time, and medians then judge it.
  const size_t count = values.size();
  if (count < 2 * min_windows) return {};
  std::vector<double> sums = {0};
  const double cap = 3 * median(values);  // one outlier must not make a step
  for (const double value : values) {
    sums.push_back(sums.back() + (std::isnan(value) ? 0 : std::min(value, cap)));
  }
  size_t best = 0;
  double best_gain = 0;
  for (size_t split = min_windows; split + min_windows <= count; ++split) {
    const auto left = static_cast<double>(split), right = static_cast<double>(count - split);
    const double difference = (sums[count] - sums[split]) / right - sums[split] / left;
    const double gain = difference <= 0 ? 0 : difference * difference * left * right;
    if (gain > best_gain) {
      best_gain = gain;
      best = split;
    }
  }
  if (best == 0) return {};
  const std::vector<double> before = values_in(values, {0, best});
  const std::vector<double> after = values_in(values, {best, count});
  const Rise rise{{best, count}, median(before), median(after)};
  std::vector<double> distances;
  for (size_t i = 0; i < count; ++i) {
    distances.push_back(values[i] - (i < best ? rise.before : rise.after));
  }
  const double noise = spread(distances);
  const double error = noise * std::sqrt(1 / static_cast<double>(before.size()) +
                                         1 / static_cast<double>(after.size()));
  const double step = rise.after - rise.before;
  const bool is_clear = step > min_spreads * noise && step > min_errors_of_rise * error &&
                        rise.after > min_ratio * rise.before;
  return is_clear ? std::optional(rise) : std::nullopt;
}

}  // namespace trireme::analysis
