// SPDX-License-Identifier: Apache-2.0
// The layers of a pipeline rank, and the time of one micro-batch on it.
#pragma once

#include <array>
#include <cstdint>

#include "plan/job.h"
#include "plan/memory/stage_blocks.h"
#include "plan/price/layer_cost.h"
#include "plan/stack.h"
#include "spec/memory/predict.h"

namespace trireme::plan {

struct LayerCosts {
  // other_block: of the second kind (block_kinds.h); the same as block if there is none.
  LayerCost embedding, block, other_block, head;
  // Buffers of layouts that the engine runs: staged batches, and sums along tp and cp.
  spec::StagingBytes staging;
  int64_t axis_buffers = 0;
};

struct RankShare {
  double blocks = 0, other_blocks = 0;  // of the first and of the second kind
  bool has_embedding = false, has_head = false;

  double all_blocks() const { return blocks + other_blocks; }
};
// Return the number of parameter elements on the rank.
double params_of(const LayerCosts&, const RankShare&);
double expert_params_of(const LayerCosts&, const RankShare&);

// Seconds of one micro-batch.
struct PhaseSeconds {
  double forward = 0, backward = 0;  // totals that include the parts below
  double weight = 0;                 // the part of backward that can be deferred
  double ends = 0, tensor = 0, host = 0;

  double total() const { return forward + backward; }
};
PhaseSeconds seconds_of(const Stack&, const LayerCosts&, const RankShare&);

// Ranks that include the slowest one and the one that needs the most memory: the first, second and
// last, one between them, and with split backward several.
struct EndRanks {
  static constexpr size_t max_count = 16;
  std::array<int, max_count> ranks{};
  int count = 0;
};

struct RankTimes {
  StageBlocks cut;
  EndRanks ends;
  std::array<RankShare, EndRanks::max_count> shares;  // of the end ranks
  RankShare slowest;                                  // share of the slowest rank
  PhaseSeconds slowest_seconds;
  double all_seconds = 0;  // of all ranks of a pipeline together
};
// Computes the times with the engine's cut, or with equal shares (Stack::even_cut).
RankTimes rank_times(const Job&, const Layout&, const Stack&, const LayerCosts&);

// Returns the number of the stage that is chunk `chunk` of a rank.
int64_t stage_of(const Layout&, int rank, int chunk);
RankShare share_of(const Layout&, const StageBlocks&, int rank);

EndRanks end_ranks(const Layout&);

}  // namespace trireme::plan
