// SPDX-License-Identifier: Apache-2.0
// How many blocks every stage of a pipeline has, in closed form. The balanced cut is that of
// spec/parallel/stage_cut.h, by which the engine cuts, for an embedding, equal blocks and a head.
#pragma once

#include <cstdint>

namespace trireme::plan {

struct StageBlocks {
  double blocks = 0;
  int64_t stages = 1;
  bool is_even = false;
  // The first stage has `first`, others `most` as long as there are enough.
  double first = 0, most = 0;

  double before(int64_t stage) const;  // of all stages in front of it
  double of(int64_t stage) const { return before(stage + 1) - before(stage); }
};

// As many for each as possible, where the last ones have what is left; or, where that makes equal
// shares, with embedding and head counted as a block each.
StageBlocks even_blocks(double blocks, int64_t stages);

struct CutCosts {
  double embedding = 0, block = 1, head = 0;
};
// So that the dearest stage costs the least, with at least one layer each, embedding and head
// among them; of equal cuts, the one whose first stages are largest.
// REQUIRES: 1 <= stages <= blocks + 2; block above 0, the others not below.
StageBlocks balanced_blocks(double blocks, int64_t stages, const CutCosts&);

}  // namespace trireme::plan
