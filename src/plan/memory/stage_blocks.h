// SPDX-License-Identifier: Apache-2.0
// The number of blocks on each stage of a pipeline, in closed form if all blocks are equal. The
// balanced cut equals the engine's (spec/parallel/stage_cut.h).
#pragma once

#include <cstdint>
#include <vector>

namespace trireme::plan {

struct StageBlocks {
  double blocks = 0;
  int64_t stages = 1;
  bool is_even = false;
  // The first stage has `first` blocks, each later one `later` as long as enough are left.
  double first = 0, later = 0;
  // With two kinds of blocks (block_kinds.h): which blocks are of the second, and, for a balanced
  // cut, the blocks in front of each stage. Otherwise empty.
  std::vector<bool> is_other = {};
  std::vector<double> starts = {};

  double before(int64_t stage) const;  // blocks on all stages in front of it
  double of(int64_t stage) const { return before(stage + 1) - before(stage); }
  // Returns the blocks of the stage that are of the second kind.
  double other_of(int64_t stage) const;
};

// Gives each stage the same number of blocks, and the last stages what is left. Embedding and head
// count as a block each if that makes the shares equal.
StageBlocks even_blocks(double blocks, int64_t stages);

struct CutCosts {
  double embedding = 0, block = 1, head = 0;
};
// Minimises the cost of the most expensive stage, with at least one layer (embedding and head
// included) on each; among equal cuts it takes the one with the largest first stages.
// REQUIRES: 1 <= stages <= blocks + 2; costs.block > 0, the other costs >= 0.
StageBlocks balanced_blocks(double blocks, int64_t stages, const CutCosts&);
// The same for blocks of two kinds: `other` is the cost of those that `is_other` names.
StageBlocks balanced_blocks(const std::vector<bool>& is_other, int64_t stages, const CutCosts&,
                            double other);

}  // namespace trireme::plan
