// SPDX-License-Identifier: Apache-2.0
// Layer: a const piece of the model. All that varies (stream, parameters, gradients, stash,
// scratch, batch) is passed in, so any number of micro-batches may be in flight through one layer.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "device/device.h"
#include "device/memory.h"
#include "spec/facts/facts.h"
#include "spec/recipe.h"

namespace trireme::nn {

using device::ConstTensor;
using device::Tensor;

// The slots of one layer for one micro-batch (spec/facts/facts.h: BlockSlot and friends). It is the
// only memory that outlives a phase. Every slot asked for is marked as taken; the engine counts the
// marks, which is what "measured" means.
class Stash {
 public:
  // `fates`: what the recompute policy does with each slot. All spans are as long as the layer has
  // slots.
  Stash(std::span<const Tensor> slots, std::span<uint8_t> taken, std::span<const spec::Fate> fates)
      : slots_(slots), taken_(taken), fates_(fates) {}

  template <typename SlotEnum>
  Tensor operator[](SlotEnum slot) {
    const auto at = static_cast<size_t>(slot);
    taken_[at] = 1;
    return slots_[at];
  }
  template <typename SlotEnum>
  spec::Fate fate(SlotEnum slot) const {
    return fates_[static_cast<size_t>(slot)];
  }

 private:
  std::span<const Tensor> slots_;
  std::span<uint8_t> taken_;
  std::span<const spec::Fate> fates_;
};

// Where a pass leaves what the step adds up, on the device.
struct StepSink {
  Tensor sums;          // one kernels::StepSums
  Tensor token_losses;  // optional [T] f32: evaluation
  Tensor logits;        // optional [n, V] f32: gets the logits of rows [first_logits_row, + n)
  int64_t first_logits_row = 0;
};

// What a layer may touch while it runs.
struct Pass {
  device::Stream& stream;
  std::span<const Tensor> params;  // by the layer's parameter enum; absent ones are empty
  std::span<const Tensor> grads;   // added to, or see `writes`
  Stash& stash;
  device::Arena& scratch;
  const spec::Recipe& recipe;

  Tensor x, y;          // forward: input (slot x of this layer), output (slot x of the next)
  Tensor dy, dx;        // backward: gradient of the output (slot dy of this layer), of the input
  bool writes = false;  // gradients of weights (Param::is_written) begin with this pass
  bool recomputing = false;  // refill dropped slots only, from the kept ones; y is not written
  bool evaluating = false;   // no backward follows: gradients may be left out

  // The micro-batch: a flat stream of T tokens, cut into sequences.
  ConstTensor tokens, labels, positions;  // [T] i32
  ConstTensor seq_offsets;                // i32, see kernels::AttentionForwardArgs
  int64_t sequences = 1, max_seq = 0;     // nominal
  bool has_documents = false;             // sequences may be cut further, as seq_offsets say
  ConstTensor rope_table;                 // [max_seq, K] f32, where the model has RoPE
  StepSink& sink;

  // Must this pass compute the slot?
  template <typename SlotEnum>
  bool fills(SlotEnum slot) const {
    return !recomputing || stash.fate(slot) == spec::Fate::recomputed;
  }
  // Backward: the slot if it must be written again, else nothing.
  template <typename SlotEnum>
  Tensor recomputed_in_b(SlotEnum slot) const {
    return stash.fate(slot) == spec::Fate::recomputed_in_b ? stash[slot] : Tensor{};
  }
};

class Layer {
 public:
  virtual ~Layer() = default;
  // Forward and input gradient are cut into phases where another micro-batch's work may be
  // interleaved.
  virtual int phases() const = 0;
  // REQUIRES: phases are run in order 0 .. phases() - 1.
  virtual void forward(Pass&, int phase) const = 0;
  // REQUIRES: phases are run in order phases() - 1 .. 0. Norm weights and some biases get
  // their gradient here.
  virtual void backward_input(Pass&, int phase) const = 0;
  virtual void backward_weight(Pass&) const = 0;
};

class Boundary;

// What the rank at the boundary's place along tp computes of the layer. The boundary's group, if
// any, must outlive it.
std::unique_ptr<Layer> make_layer(const spec::LayerSpec&, const spec::LocalShape&,
                                  const spec::Backend&, const Boundary&);

}  // namespace trireme::nn
