// SPDX-License-Identifier: Apache-2.0
// DelayedScales: the largest magnitudes with which the blocks of a rank quantise under delayed
// scaling. They are those of the last steps: every step enters its own into the history, which is
// state of the layer (spec/state/float8_state.h), once all ranks know the maximum.
//
// Blocks whose history is empty cannot quantise well. This is so before the first step, and after a
// block has returned from bf16: the engine then runs the step's micro-batches once before the step,
// only to fill the history.
#pragma once

#include <vector>

#include "device/device.h"
#include "device/memory.h"
#include "engine/precision/numerics.h"
#include "engine/state/train_state.h"
#include "spec/plan.h"

namespace trireme::engine {

class DelayedScales {
 public:
  // Takes the memory of spec::delayed_amax_spec() from `optim`. The references must outlive it.
  DelayedScales(const spec::ModelSpec&, const spec::Plan&, int pp_rank, const TrainState&,
                const Numerics&, device::Stream& compute, device::Arena& optim);

  // Does the plan train with delayed scaling? The same on all ranks.
  bool is_on() const { return is_on_; }
  // Returns the magnitudes of a layer by spec::Quantized, without weights; empty if its products
  // are not in 8 bits, or if scaling is not delayed.
  device::Tensor largest(int layer) const;

  // ---- at the end of a step, on the compute stream
  // Adds what the rank's micro-batches have counted to spec::amax_state, before it is reduced.
  void collect();
  // Enters it into the history, unless the step was skipped. `step_state` may be empty.
  void rotate(device::ConstTensor step_state);

  // After state was written: clears the history of blocks that stay in bf16.
  void state_changed();
  // Is the history of a block of this rank empty? Waits for the device.
  bool is_empty() const;

 private:
  struct Block {
    int layer = 0;
    device::Tensor amax, history;  // [n] and [n, H] f32, n = spec::delayed_count
    device::Tensor largest;        // [n]; empty: the block stays in bf16
    device::ConstTensor counts;    // the first n rows of its numerics
  };

  device::Stream& compute_;
  bool is_on_;
  std::vector<Block> blocks_;
};

}  // namespace trireme::engine
