// SPDX-License-Identifier: Apache-2.0
// Which layers a pipeline rank has, and what one micro-batch takes on it.
#pragma once

#include <array>
#include <cstdint>

#include "plan/job.h"
#include "plan/price/layer_cost.h"
#include "plan/stack.h"
#include "plan/memory/stage_blocks.h"
#include "spec/memory/predict.h"

namespace trireme::plan {

struct LayerCosts {
  LayerCost embedding, block, dense_block, head;  // dense_block: without experts, where some are
  // Buffers of layouts that the engine runs: batches on their way, and sums along tp.
  spec::StagingBytes staging;
  int64_t tensor_buffer = 0;
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

// Ranks among which are the one that takes the longest and the one that needs the most memory: both
// ends and the one beside the first; some between them, where weight gradients are put off.
struct EndRanks {
  static constexpr size_t most = 16;
  std::array<int, most> ranks{};
  int count = 0;
};

struct RankTimes {
  StageBlocks cut;
  EndRanks ends;
  std::array<RankShare, EndRanks::most> shares;  // of the end ranks
  RankShare last;                                // of the rank that takes the longest
  PhaseSeconds last_seconds;
  double all_seconds = 0;  // of all ranks of a pipeline together
};
// Blocks are cut as the engine cuts them, or in equal shares (Stack::even_cut).
RankTimes rank_times(const Job&, const Layout&, const Stack&, const LayerCosts&);

// Stage number `chunk` of a rank.
int64_t stage_of(const Layout&, int rank, int chunk);
RankShare share_of(const Job&, const Layout&, const StageBlocks&, int rank);

EndRanks end_ranks(const Layout&);

}  // namespace trireme::plan
