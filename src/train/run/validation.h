// SPDX-License-Identifier: Apache-2.0
// The loss on held-out data, computed by all data ranks together.
#pragma once

#include <span>

#include "data/samples/sample_provider.h"
#include "engine/engine.h"
#include "train/report/losses/validation_figures.h"
#include "train/setup/rank.h"

namespace trireme::train {

// Returns the loss of the first `samples` samples in their order; -1: of all. Every
// layout and micro-batch takes the same samples; losses are summed by sample, then in the order of
// the data, so that every number of ranks gives the same bits, which are also those of
// Inference::losses (`trireme eval`). The same on all ranks. Collective.
//
// `token_bytes`, by token, has the bytes of text of each; empty: not known, and the sum has none.
ValidationSum validate(engine::Engine&, Rank&, const data::SampleProvider&, int64_t samples,
                       std::span<const int32_t> token_bytes);

// Returns how many samples validate() takes of a sampler with `available` samples.
inline int64_t validated_samples(int64_t asked, int64_t available) {
  return asked < 0 || asked > available ? available : asked;
}

}  // namespace trireme::train
