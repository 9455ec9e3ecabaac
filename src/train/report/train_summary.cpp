// SPDX-License-Identifier: Apache-2.0
#include "train/report/train_summary.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "base/check.h"
#include "obs/terminal/number_text.h"

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
  summary.predicted = device.predicted;
  summary.measured = device.measured;
  for (HostMemoryUse HostMemory::*purpose :
       {&HostMemory::buffers, &HostMemory::checkpoints, &HostMemory::rebuild, &HostMemory::copies,
        &HostMemory::kept}) {
    const auto weight = [purpose](const RankFigures& rank) {
      const HostMemoryUse& use = rank.host.*purpose;
      return weight_of(use.predicted_bytes, use.measured_bytes);
    };
    summary.host_memory.*purpose = std::ranges::max_element(ranks, {}, weight)->host.*purpose;
  }
  if (summary.host_memory.rebuild.measured_bytes == 0) summary.host_memory.rebuild = {};
  summary.ranks = std::move(ranks);
}

bool is_unsaved(const TrainSummary& s) {
  if (s.saved_step == s.steps) return false;
  const bool saves = s.checkpoints.saves + s.checkpoints.failed > 0;
  return s.was_stopped || (saves && s.attempt_steps > 0);
}

int64_t newest_checkpoint(const TrainSummary& s) { return std::max(s.saved_step, s.resumed_from); }

std::string export_advice(const TrainSummary& s, const std::string& run_folder) {
  const int64_t newest = newest_checkpoint(s);
  if (newest <= 0) return "there is no checkpoint to export them from";
  if (newest == s.steps) {
    return fmt::format("`trireme ckpt export {}` makes them from the checkpoint of step {}",
                       run_folder, obs::grouped(newest));
  }
  return fmt::format(
      "the newest checkpoint is of step {}, and `trireme ckpt export {}` would export that step, "
      "not step {}",
      obs::grouped(newest), run_folder, obs::grouped(s.steps));
}

}  // namespace trireme::train
