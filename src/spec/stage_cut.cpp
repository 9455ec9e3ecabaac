// SPDX-License-Identifier: Apache-2.0
#include "spec/stage_cut.h"

#include <limits>

#include "base/check.h"

namespace trireme::spec {
namespace {

constexpr double slack = 1 + 1e-12;  // of sums in another order

// Of as few runs as possible none of which costs more than `bound`.
int runs_within(std::span<const double> costs, double bound) {
  int runs = 1;
  double sum = 0;
  for (const double cost : costs) {
    if (cost > bound) return std::numeric_limits<int>::max();
    if (sum + cost > bound) {
      ++runs;
      sum = 0;
    }
    sum += cost;
  }
  return runs;
}

}  // namespace

std::vector<int> balanced_cut(std::span<const double> costs, int stages) {
  const int count = static_cast<int>(costs.size());
  TRIREME_CHECK(stages >= 1 && stages <= count, "{} stages of {} layers", stages, count);
  // The dearest stage costs as much as some run of layers; the smallest such bound that suffices.
  double best = std::numeric_limits<double>::max();
  for (int first = 0; first < count; ++first) {
    double sum = 0;
    for (int last = first; last < count; ++last) {
      sum += costs[static_cast<size_t>(last)];
      if (sum < best && runs_within(costs, sum * slack) <= stages) best = sum;
    }
  }
  std::vector<int> cut = {0};
  double sum = 0;
  for (int layer = 0; layer < count; ++layer) {
    const double cost = costs[static_cast<size_t>(layer)];
    const int stages_left = stages - static_cast<int>(cut.size());
    const bool must_cut = count - layer == stages_left;  // one layer for each that is left
    if (layer > cut.back() && (sum + cost > best * slack || must_cut) && stages_left > 0) {
      cut.push_back(layer);
      sum = 0;
    }
    sum += cost;
  }
  return cut;
}

}  // namespace trireme::spec
