// SPDX-License-Identifier: Apache-2.0
#include "train/record/stragglers.h"

#include <algorithm>
#include <map>
#include <vector>

namespace trireme::train {
namespace {

constexpr double min_excess_share = 0.03;

struct RankCompute {
  double seconds = 0;
  double work = 1;  // relative to the mean of the stage

  double relative() const { return seconds / work; }
};

// Returns how much longer the slowest rank computes than the median would with its work.
double excess_seconds(std::vector<RankCompute> ranks) {
  const auto middle = ranks.begin() + static_cast<ptrdiff_t>((ranks.size() - 1) / 2);
  std::nth_element(
      ranks.begin(), middle, ranks.end(),
      [](const RankCompute& a, const RankCompute& b) { return a.relative() < b.relative(); });
  const double median = middle->relative();
  double excess = 0;
  for (const RankCompute& rank : ranks) {
    excess = std::max(excess, rank.seconds - median * rank.work);
  }
  return excess > min_excess_share * median ? excess : 0;
}

}  // namespace

double straggler_seconds(const spec::Sizes& mesh, std::span<const obs::RankSample> samples) {
  std::map<int, std::vector<RankCompute>> stages;
  for (size_t rank = 0; rank < samples.size(); ++rank) {
    const obs::RankSample& sample = samples[rank];
    const double work = static_cast<double>(sample[obs::RankColumn::work]);
    stages[spec::coord_of(mesh, static_cast<int>(rank))[spec::Axis::pp]].push_back(
        {.seconds = static_cast<double>(sample[obs::RankColumn::compute_seconds]),
         .work = work > 0 ? work : 1});
  }
  double seconds = 0;
  for (const auto& [stage, ranks] : stages) seconds = std::max(seconds, excess_seconds(ranks));
  return seconds;
}

}  // namespace trireme::train
