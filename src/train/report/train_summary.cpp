// SPDX-License-Identifier: Apache-2.0
#include "train/report/train_summary.h"

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "base/check.h"

namespace trireme::train {
namespace {

// Pairs to compare: the difference of the two, then the prediction.
std::pair<int64_t, int64_t> weight_of(int64_t predicted, int64_t measured) {
  return {std::abs(measured - predicted), predicted};
}

}  // namespace

void set_ranks(TrainSummary& summary, std::vector<RankFigures> ranks) {
  TRIREME_CHECK(!ranks.empty(), "no rank");
  const RankFigures& device = *std::ranges::max_element(ranks, {}, [](const RankFigures& rank) {
    return weight_of(rank.predicted.total(), rank.measured.total());
  });
  const RankFigures& host = *std::ranges::max_element(ranks, {}, [](const RankFigures& rank) {
    return weight_of(rank.checkpoints.predicted_bytes, rank.checkpoints.measured_bytes);
  });
  summary.predicted = device.predicted;
  summary.measured = device.measured;
  summary.checkpoint_memory = host.checkpoints;
  summary.ranks = std::move(ranks);
}

}  // namespace trireme::train
