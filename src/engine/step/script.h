// SPDX-License-Identifier: Apache-2.0
// Script: the order of steps inside one action of the schedule: phases of layers, and gather,
// release and reduce of their buckets if training state is sharded. A pure function; the stage runs
// the steps.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "spec/plan.h"

namespace trireme::engine {

struct Step {
  enum class Kind : uint8_t {
    gather,           // start to gather the layer's parameters
    release,          // the layer's gathered parameters are no longer needed
    zero,             // a leaf of the layer's gradients begins
    reduce,           // the leaf is complete
    forward,          // one phase
    recompute,        // one phase, computes dropped slots
    backward_input,   // one phase
    backward_weight,  // the whole layer; phase is 0
  };
  Kind kind = Kind::forward;
  int16_t layer = 0;  // of the stage, from 0
  int16_t phase = 0;
  bool operator==(const Step&) const = default;
};

enum class Walk : uint8_t {
  forward,          // F
  backward,         // BW: recompute, input gradient and weight gradient of each layer in turn
  backward_input,   // B
  backward_weight,  // W
};

struct ScriptOptions {
  std::span<const int> phases_by_layer;
  std::span<const spec::Recompute> recompute;  // by layer
  spec::Residency residency;
  int prefetch = 1;             // how many layers ahead parameters are gathered
  bool prefetch_after = false;  // in backward: after the layer's work instead of before
  int head = -1;         // the layer whose forward computes weight gradients; -1: not in the stage
  int stays = -1;        // the layer whose parameters stay for the whole forward; -1: none
  bool begins = false;   // a leaf of gradients begins with this action
  bool reduces = false;  // the leaf is complete after it
  bool gathers = true;   // sharded parameters have to be gathered
  bool releases = true;  // and are released after use
};
std::vector<Step> script(Walk, const ScriptOptions&);

}  // namespace trireme::engine
