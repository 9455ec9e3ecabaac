// SPDX-License-Identifier: Apache-2.0
// Robust statistics of windows: medians, their spread, and deviations that persist.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

namespace trireme::analysis {

// NaN values are left out. Returns NaN if nothing remains.
double median(std::vector<double> values);
double mean(const std::vector<double>& values);
// The standard deviation of a normal distribution with this median absolute deviation.
double spread(const std::vector<double>& values);

// Windows [begin, end).
struct WindowRange {
  size_t begin = 0, end = 0;
  size_t size() const { return end - begin; }
};

struct Persistence {
  size_t hits = 8, of = 10;  // so many of so many consecutive windows exceed the limit
};
// Returns the range in which values exceed `limit` persistently and by the largest sum; none if
// there is no such range. NaN never exceeds.
std::optional<WindowRange> persistent_range(const std::vector<double>& values, double limit,
                                            const Persistence& rule);

// Returns the values of a range.
std::vector<double> values_in(const std::vector<double>& values, const WindowRange& range);

}  // namespace trireme::analysis
