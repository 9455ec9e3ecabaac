// SPDX-License-Identifier: Apache-2.0
// The loss on held-out data, shared out over the data ranks.
#pragma once

#include "data/sampler.h"
#include "engine/engine.h"
#include "train/rank.h"

namespace trireme::train {

// Of the first `microbatches` micro-batches of `sampler` in its order; -1: of all samples. Each
// data rank takes every n-th; the sums are added in the order of the data, so that every number of
// ranks gives the same bits. The same on all ranks. Collective.
engine::EvalReport validate(engine::Engine&, Rank&, const data::Sampler& sampler,
                            int64_t microbatches);

}  // namespace trireme::train
