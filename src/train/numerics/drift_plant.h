// SPDX-License-Identifier: Apache-2.0
// DriftPlant: makes the activations of one block grow, for tests of the alarm. Every step after the
// onset multiplies one channel of an activation by a rate and divides the weights that read it:
//
//   act:    the channel's row of the up projection; its column of the down projection;
//   inputs: the channel of both norms; its columns of the qkv and up projections.
//
// The model computes the same function in exact arithmetic, and in bf16 nearly so; with one 8-bit
// scale for a tensor the channel's growth flushes all other channels to zero in the end. Values are
// set from those at the onset, so that the optimizer's changes of this channel do not add up; they
// would, because its gradients grow as well.
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "engine/engine.h"
#include "spec/model.h"

namespace trireme::train {

enum class DriftPlace : uint8_t { act, inputs, both };

struct DriftOptions {
  int block = -1;  // counted from 0; -1: none
  int64_t channel = 0;
  int64_t onset = 0;                                  // the last step before the growth
  int64_t end = std::numeric_limits<int64_t>::max();  // the last step that is planted
  double rate = 1;                                    // of a step
  DriftPlace place = DriftPlace::act;
};
// Reads "block=2,channel=5,onset=200,end=300,rate=1.05,place=both". Throws ConfigError that names
// the part.
DriftOptions drift_options_from(std::string_view text);

class DriftPlant {
 public:
  // Throws ConfigError if the model has no such block or channel. The model must outlive it.
  DriftPlant(const DriftOptions&, const spec::ModelSpec&);

  // Before step `step`. Does nothing before the onset. Collective.
  void apply(engine::Engine&, int64_t step);

 private:
  // Elements of a parameter that grow with a power of the rate: 1, or -1 for those that shrink.
  struct Grown {
    std::string name;
    std::map<int64_t, int> powers;  // by element
    std::vector<float> values;      // at the onset, in this order; empty before it
  };
  // A row or a column of a parameter.
  struct Line {
    int64_t first = 0, stride = 1, count = 1;
  };
  void add(const std::string& name, const Line&, int power);

  DriftOptions options_;
  std::vector<Grown> params_;
};

}  // namespace trireme::train
