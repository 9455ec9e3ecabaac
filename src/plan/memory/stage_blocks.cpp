// SPDX-License-Identifier: Apache-2.0
#include "plan/memory/stage_blocks.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "spec/parallel/stage_cut.h"

namespace trireme::plan {
namespace {

constexpr double slack = 1 + 1e-12;  // sums in another order, as in spec/parallel/stage_cut.cpp

// Returns the blocks that fit on a stage beside `ends` within `bound`; negative if `ends` alone
// exceeds it.
double room(double bound, double ends, double block) {
  const double left = bound * slack - ends;
  return left < 0 ? -1 : std::floor(left / block * slack);
}

bool suffices(double bound, double blocks, double stages, const CutCosts& costs) {
  const double first = room(bound, costs.embedding, costs.block);
  const double last = room(bound, costs.head, costs.block);
  if (first < 0 || last < 0) return false;
  return first + last + (stages - 2) * room(bound, 0, costs.block) >= blocks;
}

}  // namespace

double StageBlocks::before(int64_t stage) const {
  if (stage <= 0) return 0;
  if (stage >= stages) return blocks;
  if (!starts.empty()) return starts[static_cast<size_t>(stage)];
  if (is_even) return std::min(blocks, first + static_cast<double>(stage - 1) * later);
  // Leave a layer for every later stage; the last one has the head.
  const double left = blocks - first + 1;
  return first + std::min(static_cast<double>(stage - 1) * later,
                          left - static_cast<double>(stages - stage));
}

double StageBlocks::other_of(int64_t stage) const {
  if (is_other.empty()) return 0;
  const auto at = [&](double block) { return is_other.begin() + static_cast<ptrdiff_t>(block); };
  return static_cast<double>(std::count(at(before(stage)), at(before(stage + 1)), true));
}

StageBlocks even_blocks(double blocks, int64_t stages) {
  const auto count = static_cast<double>(stages);
  const double share = std::ceil(blocks / count);
  // Models designed for this have two blocks fewer, in place of embedding and head.
  const bool counts_ends = stages > 1 && blocks + 2 == share * count;
  return {.blocks = blocks,
          .stages = stages,
          .is_even = true,
          .first = counts_ends ? share - 1 : share,
          .later = share};
}

StageBlocks balanced_blocks(double blocks, int64_t stages, const CutCosts& costs) {
  const auto count = static_cast<double>(stages);
  if (stages == 1) {
    return {.blocks = blocks, .stages = 1, .is_even = true, .first = blocks, .later = blocks};
  }
  // The most expensive stage is one of three kinds of stages with some number of blocks.
  double best = INFINITY;
  for (const double ends : std::array<double, 3>{0, costs.embedding, costs.head}) {
    double low = 0, high = blocks;  // bisect for the fewest blocks that suffice
    if (!suffices(ends + high * costs.block, blocks, count, costs)) continue;
    while (low < high) {
      const double middle = std::floor((low + high) / 2);
      if (suffices(ends + middle * costs.block, blocks, count, costs)) {
        high = middle;
      } else {
        low = middle + 1;
      }
    }
    best = std::min(best, ends + low * costs.block);
  }
  // Every other stage needs a layer; the last one has the head.
  const double first = std::min(room(best, costs.embedding, costs.block), blocks + 2 - count);
  return {.blocks = blocks,
          .stages = stages,
          .is_even = false,
          .first = first,
          .later = std::max(1.0, room(best, 0, costs.block))};
}

StageBlocks balanced_blocks(const std::vector<bool>& is_other, int64_t stages,
                            const CutCosts& costs, double other) {
  std::vector<double> layers = {costs.embedding};
  for (const bool one : is_other) layers.push_back(one ? other : costs.block);
  layers.push_back(costs.head);
  StageBlocks cut{.blocks = static_cast<double>(is_other.size()),
                  .stages = stages,
                  .is_other = is_other,
                  .starts = {}};
  for (const int layer : spec::balanced_cut(layers, static_cast<int>(stages))) {
    cut.starts.push_back(std::clamp(static_cast<double>(layer) - 1, 0.0, cut.blocks));
  }
  return cut;
}

}  // namespace trireme::plan
