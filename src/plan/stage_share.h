// SPDX-License-Identifier: Apache-2.0
// Which layers a pipeline rank has, and what one micro-batch takes on it.
#pragma once

#include "plan/job.h"
#include "plan/layer_cost.h"
#include "plan/stack.h"

namespace trireme::plan {

struct LayerCosts {
  LayerCost embedding, block, dense_block, head;  // dense_block: without experts, where some are
};

struct RankShare {
  double blocks = 0, dense_blocks = 0;
  bool has_embedding = false, has_head = false;

  double all_blocks() const { return blocks + dense_blocks; }
};
double params_of(const LayerCosts&, const RankShare&);  // elements on the rank
double expert_params_of(const LayerCosts&, const RankShare&);

// Of one micro-batch.
struct PhaseSeconds {
  double forward = 0, backward = 0;  // with all that is below
  double weight = 0;                 // of backward, what can be put off
  double ends = 0, tensor = 0, host = 0;

  double total() const { return forward + backward; }
};
PhaseSeconds seconds_of(const Stack&, const LayerCosts&, const RankShare&);

struct RankTimes {
  RankShare first, last;  // the first rank, and the one that takes the longest
  PhaseSeconds last_seconds;
  double all_seconds = 0;  // of all ranks of a pipeline together
};
// Blocks are cut so that the dearest stage costs the least, or in equal shares (Stack::even_cut).
RankTimes rank_times(const Job&, const Layout&, const Stack&, const LayerCosts&);

}  // namespace trireme::plan
