// SPDX-License-Identifier: Apache-2.0
// The layers of a pipeline rank: their buckets, the frames of its stages, and the gradients that
// lie in them.
#pragma once

#include <cstdint>
#include <vector>

#include "plan/memory/pipe_lives.h"
#include "plan/memory/stage_share.h"
#include "spec/memory/stash_layout.h"
#include "spec/parallel/bucket.h"
#include "spec/plan.h"

namespace trireme::plan {

// Returns the slots of a layer with the rank's kind of backward.
inline const spec::LayerStash& stash_of(const LayerCost& cost, const RankLives& rank) {
  return rank.is_merged ? cost.merged_stash : cost.split_stash;
}

// Returns the elements of a layer's first bucket, padded for the ranks that sum it.
int64_t dense_elements(const LayerCost&, const Layout&);
// Returns the buckets of a layer in their order, padded for the ranks that sum them, without
// entries.
std::vector<spec::BucketLayout> buckets_of(const LayerCost&, const Layout&);
// Returns the buckets of all layers of a rank, in order.
std::vector<spec::BucketLayout> buckets_of(const LayerCosts&, const RankLives&, const Layout&);

// Returns the frame sizes of a stage of the rank.
spec::StageStash frames_of(const LayerCosts&, const RankLives&, const StageBlocks&, int stage);

// Returns the bytes of gradients that are stored in the stash. The plan has one micro-batch and one
// stage, and gradients lie there as far as they fit.
int64_t grads_in_stash(const spec::Plan&, const LayerCosts&, const RankLives&, const Layout&);

}  // namespace trireme::plan
