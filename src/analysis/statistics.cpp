// SPDX-License-Identifier: Apache-2.0
#include "analysis/statistics.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace trireme::analysis {

double median(std::vector<double> values) {
  std::erase_if(values, [](double value) { return std::isnan(value); });
  if (values.empty()) return std::numeric_limits<double>::quiet_NaN();
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  if (values.size() % 2 == 1) return *middle;
  return (*middle + *std::max_element(values.begin(), middle)) / 2;
}

double mean(const std::vector<double>& values) {
  double sum = 0;
  size_t count = 0;
  for (const double value : values) {
    if (std::isnan(value)) continue;
    sum += value;
    ++count;
  }
  return count == 0 ? std::numeric_limits<double>::quiet_NaN() : sum / static_cast<double>(count);
}

double spread(const std::vector<double>& values) {
  const double middle = median(values);
  std::vector<double> distances;
  for (const double value : values) distances.push_back(std::abs(value - middle));
  return 1.4826 * median(std::move(distances));
}

std::optional<WindowRange> persistent_range(const std::vector<double>& values, double limit,
                                            const Persistence& rule) {
  std::optional<WindowRange> best, current;
  double best_sum = 0;
  const auto close = [&] {
    if (!current) return;
    while (!(values[current->end - 1] > limit)) --current->end;
    double sum = 0;
    for (size_t i = current->begin; i < current->end; ++i) {
      if (values[i] > limit) sum += values[i];
    }
    if (sum >= best_sum) {
      best = current;
      best_sum = sum;
    }
    current.reset();
  };
  size_t hits = 0;  // among the last `of` windows
  for (size_t i = 0; i < values.size(); ++i) {
    if (values[i] > limit) ++hits;
    if (i >= rule.of && values[i - rule.of] > limit) --hits;
    if (i + 1 < rule.of || hits < rule.hits) {
      close();
      continue;
    }
    if (!current) {
      current = WindowRange{i + 1 - rule.of, i + 1};
      while (!(values[current->begin] > limit)) ++current->begin;
    }
    current->end = i + 1;
  }
  close();
  return best;
}

std::vector<double> values_in(const std::vector<double>& values, const WindowRange& range) {
  return {values.begin() + static_cast<std::ptrdiff_t>(range.begin),
          values.begin() + static_cast<std::ptrdiff_t>(range.end)};
}

}  // namespace trireme::analysis
