// SPDX-License-Identifier: Apache-2.0
// The loss on held-out data, computed by all data ranks together.
#pragma once

#include "data/samples/sampler.h"
#include "engine/engine.h"
#include "train/setup/rank.h"

namespace trireme::train {

// Returns the loss of the first `samples` samples of `sampler` in its order; -1: of all. Every
// layout and micro-batch takes the same samples; losses are summed by sample, then in the order of
// the data, so that every number of ranks gives the same bits, which are also those of
// Inference::losses (`trireme eval`). The same on all ranks. Collective.
engine::EvalReport validate(engine::Engine&, Rank&, const data::Sampler& sampler, int64_t samples);

// Returns how many samples validate() takes of a sampler with `available` samples.
inline int64_t validated_samples(int64_t asked, int64_t available) {
  return asked < 0 || asked > available ? available : asked;
}

}  // namespace trireme::train
