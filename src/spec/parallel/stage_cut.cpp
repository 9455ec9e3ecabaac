// SPDX-License-Identifier: Apache-2.0
#include "spec/parallel/stage_cut.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <limits>

#include "base/check.h"

namespace trireme::spec {
namespace {

constexpr double slack = 1 + 1e-12;  // for sums in another order

// Returns the smallest number of runs none of which costs more than `bound`.
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

// Returns the smallest bound for which the given number of runs suffices. Doubles above 0 are
// ordered as their bits, and a larger bound never needs more runs.
double smallest_bound(std::span<const double> costs, int stages) {
  double total = 0;
  for (const double cost : costs) total += cost;
  uint64_t low = 0, high = std::bit_cast<uint64_t>(total);
  while (low < high) {
    const uint64_t middle = low + (high - low) / 2;
    if (runs_within(costs, std::bit_cast<double>(middle)) <= stages) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  return std::bit_cast<double>(low);
}

// Returns the smallest cost of a run of layers that, with the slack, is a sufficient bound for the
// stages.
double dearest_stage(std::span<const double> costs, int stages) {
  const double bound = smallest_bound(costs, stages);
  const size_t count = costs.size();
  std::vector<size_t> equal_until(count);  // the last of consecutive layers with the same cost
  for (size_t i = count; i-- > 0;) {
    equal_until[i] = i + 1 < count && costs[i] == costs[i + 1] ? equal_until[i + 1] : i;
  }
  double best = std::numeric_limits<double>::max();
  size_t length = 0;  // of the previous run
  for (size_t first = 0; first < count; ++first) {
    // Blocks have equal costs: the same sum as one layer before.
    if (length > 0 && equal_until[first - 1] >= first + length - 1) continue;
    double sum = 0;
    size_t last = first;
    for (; last < count; ++last) {
      sum += costs[last];
      if (sum * slack >= bound) break;
    }
    if (last == count) break;  // runs that begin later cost less
    best = std::min(best, sum);
    length = last - first + 1;
  }
  return best;
}

}  // namespace

std::vector<int> balanced_cut(std::span<const double> costs, int stages) {
  const int count = static_cast<int>(costs.size());
  TRIREME_CHECK(stages >= 1 && stages <= count, "{} stages of {} layers", stages, count);
  const double best = dearest_stage(costs, stages);
  std::vector<int> cut = {0};
  double sum = 0;
  for (int layer = 0; layer < count; ++layer) {
    const double cost = costs[static_cast<size_t>(layer)];
    const int stages_left = stages - static_cast<int>(cut.size());
    const bool must_cut = count - layer == stages_left;  // one layer for each remaining stage
    if (layer > cut.back() && (sum + cost > best * slack || must_cut) && stages_left > 0) {
      cut.push_back(layer);
      sum = 0;
    }
    sum += cost;
  }
  return cut;
}

}  // namespace trireme::spec
