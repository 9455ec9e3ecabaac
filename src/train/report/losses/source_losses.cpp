// SPDX-License-Identifier: Apache-2.0
#include "train/report/losses/source_losses.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "comm/mesh.h"

namespace trireme::train {
namespace {

// Adds the sums of all data ranks. Ranks exchange a few data sets at a time, because a gather is
// limited in size.
std::vector<SequenceLoss> over_ranks(Rank& rank, const spec::Plan& plan,
                                     const std::vector<SequenceLoss>& own) {
  using Some = std::array<SequenceLoss, 16>;
  const int head_rank = plan.schedule.lanes.front().back();
  std::vector<SequenceLoss> sums(own.size());
  for (size_t first = 0; first < own.size(); first += Some{}.size()) {
    const size_t count = std::min(Some{}.size(), own.size() - first);
    Some mine{};
    std::copy_n(own.begin() + static_cast<ptrdiff_t>(first), count, mine.begin());
    const std::vector<Some> all = rank.gather(mine);
    for (size_t number = 0; number < all.size(); ++number) {
      // Ranks along tp have the same losses, and only the stage of the head has any. Each rank
      // along cp has the losses of other tokens of the same samples.
      const spec::Coord coord = comm::coord_of(plan.mesh, static_cast<int>(number));
      if (coord[spec::Axis::tp] != 0 || coord[spec::Axis::pp] != head_rank) continue;
      for (size_t i = 0; i < count; ++i) {
        sums[first + i].loss_sum += all[number][i].loss_sum;
        if (coord[spec::Axis::cp] == 0) sums[first + i].tokens += all[number][i].tokens;
      }
    }
  }
  return sums;
}

}  // namespace

std::vector<SequenceLoss> source_losses(engine::Engine& engine, Rank& rank, const DataSets& data,
                                        const TrainBatches& batches) {
  std::vector<SequenceLoss> own(data.sources().size());
  const std::vector<float> losses = engine.step_losses();
  if (!losses.empty()) {
    const auto seq_len = static_cast<size_t>(engine.plan().seq_len);
    auto at = losses.begin();
    for (size_t index = 0; index < batches.microbatches(); ++index) {
      for (const TrainBatches::Filled& sample : batches.filled(index)) {
        SequenceLoss& sum = own[static_cast<size_t>(data.source_of(sample.position))];
        sum.tokens += sample.labels;
        for (size_t t = 0; t < seq_len; ++t) sum.loss_sum += static_cast<double>(*at++);
      }
    }
  }
  return over_ranks(rank, engine.plan(), own);
}

std::string source_losses_line(const DataSets& data, const std::vector<SequenceLoss>& sums) {
  std::string text;
  for (size_t i = 0; i < sums.size(); ++i) {
    if (sums[i].tokens == 0) continue;
    text += fmt::format("{}{} {:.5f}", text.empty() ? "" : ", ", data.sources()[i].name(),
                        sums[i].loss_sum / static_cast<double>(sums[i].tokens));
  }
  return "loss      " + text;
}

}  // namespace trireme::train
