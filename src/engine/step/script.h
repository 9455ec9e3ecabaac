// SPDX-License-Identifier: Apache-2.0
// Script: the order of what happens inside one action of the schedule: phases of layers, and the
// gathering, releasing and reducing of their buckets where training state is sharded. Pure; the
// stage walks it.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "spec/plan.h"

namespace trireme::engine {

struct Step {
  enum class Kind : uint8_t {
    gather,           // start to bring the layer's parameters here
    release,          // the layer's gathered parameters are no longer needed
    zero,             // the layer's gradients begin
    reduce,           // the layer's gradients are complete
    forward,          // one phase
    recompute,        // one phase, refilling dropped slots
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
  int head = -1;         // the layer whose forward adds to its gradients already; -1: not here
  int stays = -1;        // the layer whose parameters stay for the whole forward; -1: none
  bool begins = false;   // gradients begin with this action
  bool reduces = false;  // they are complete after it
  bool gathers = true;   // sharded parameters are not here yet
  bool releases = true;  // and need not stay
};
std::vector<Step> script(Walk, const ScriptOptions&);

}  // namespace trireme::engine
