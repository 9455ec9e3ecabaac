// SPDX-License-Identifier: Apache-2.0
#include "plan/memory/stage_blocks.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace trireme::plan {
namespace {

constexpr double slack = 1 + 1e-12;  // of sums in another order, as in spec/parallel/stage_cut.cpp

// Blocks that fit beside `ends` where nothing may cost more than `bound`; below 0: not even `ends`.
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
  if (is_even) return std::min(blocks, first + static_cast<double>(stage - 1) * most);
  // Layers are left for all stages behind, the head for the last.
  const double left = blocks - first + 1;
  return first + std::min(static_cast<double>(stage - 1) * most,
                          left - static_cast<double>(stages - stage));
}

StageBlocks even_blocks(double blocks, int64_t stages) {
  const auto count = static_cast<double>(stages);
  const double most = std::ceil(blocks / count);
  // Models made for it have two blocks fewer, in whose places embedding and head stand.
  const bool counts_ends = stages > 1 && blocks + 2 == most * count;
  return {blocks, stages, true, counts_ends ? most - 1 : most, most};
}

StageBlocks balanced_blocks(double blocks, int64_t stages, const CutCosts& costs) {
  const auto count = static_cast<double>(stages);
  if (stages == 1) return {blocks, 1, true, blocks, blocks};
  // The dearest stage costs as much as some number of blocks on one of the three kinds of stages.
  double best = INFINITY;
  for (const double ends : std::array<double, 3>{0, costs.embedding, costs.head}) {
    double low = 0, high = blocks;  // the fewest that suffice
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
  // Other stages need a layer each: the last has the head.
  const double first = std::min(room(best, costs.embedding, costs.block), blocks + 2 - count);
  return {blocks, stages, false, first, std::max(1.0, room(best, 0, costs.block))};
}

}  // namespace trireme::plan
