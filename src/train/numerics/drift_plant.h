// SPDX-License-Identifier: Apache-2.0
// DriftPlant: makes the activations of one block grow, for tests of the alarm. After a step, every
// step multiplies the row of one hidden channel in the block's up projection by a rate, and divides
// its column in the down projection by it. The model computes the same function in exact
// arithmetic, and in bf16 nearly so; with one 8-bit scale for a tensor the channel's growth flushes
// all other channels to zero in the end.
//
// Both are set from the values at the onset, so that the optimizer's changes of this channel do not
// add up; they would, because its gradients grow as well.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "engine/engine.h"
#include "spec/model.h"

namespace trireme::train {

struct DriftOptions {
  int block = -1;  // counted from 0; -1: none
  int64_t channel = 0;
  int64_t onset = 0;  // the last step before the growth
  double rate = 1;    // of a step
};
// Reads "block=2,channel=5,onset=200,rate=1.05". Throws ConfigError that names the part.
DriftOptions drift_options_from(std::string_view text);

class DriftPlant {
 public:
  // Throws ConfigError if the model has no such block or channel. The model must outlive it.
  DriftPlant(const DriftOptions&, const spec::ModelSpec&);

  // Before step `step`. Does nothing before the onset. Collective.
  void apply(engine::Engine&, int64_t step);

 private:
  DriftOptions options_;
  std::string up_, down_;                       // names of the weights
  int64_t up_row_ = 0;                          // of the channel
  int64_t width_ = 0, ffn_ = 0;                 // columns of both
  std::vector<float> up_values_, down_values_;  // of the channel at the onset; empty before it
};

}  // namespace trireme::train
