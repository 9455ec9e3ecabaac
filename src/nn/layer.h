// SPDX-License-Identifier: Apache-2.0
// Layer: a const piece of the model. Everything that varies (stream, parameters, gradients, stash,
// scratch, batch) is passed in, so one layer serves any number of micro-batches in flight.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "device/device.h"
#include "device/memory.h"
#include "kernels/args.h"
#include "spec/facts/facts.h"
#include "spec/recipe.h"

namespace trireme::nn {

using device::ConstTensor;
using device::Tensor;

// The slots of one layer for one micro-batch (spec/facts/facts.h: BlockSlot and friends), the only
// memory that outlives a phase. operator[] marks a slot as taken; the engine counts the marks, and
// reports them as measured memory.
class Stash {
 public:
  // `fates`: what the recompute policy does with each slot. All spans have one element per slot of
  // the layer.
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

// Device tensors to which passes add the sums of a step.
struct StepSink {
  Tensor sums;          // one kernels::StepSums
  Tensor token_losses;  // optional [T] f32: evaluation
  // By micro-batch, [T] f32: those of a training step; empty: they are not kept.
  std::span<const Tensor> step_losses;
  Tensor logits;  // optional [n, V] f32: receives the logits of rows [first_logits_row, + n)
  int64_t first_logits_row = 0;
  Tensor loss_factor = {};  // optional [1] f32: multiplies the gradient of the loss
};

// Which keys the queries of a rank see, if groups of ranks along cp share the rows of the
// micro-batch (spec/context/token_slice.h).
struct ContextKeys {
  ConstTensor begin, end;  // [sources * Tu] i32: of the rows of the group, for each source of keys
  ConstTensor order;       // [S] i32: the row of each gathered key; empty in a ring
  // By source, where the host knows the ranges; otherwise empty.
  std::span<const std::vector<kernels::QueryChunk>> chunks;
};

// Everything that a layer may access while it runs.
struct Pass {
  device::Stream& stream;
  std::span<const Tensor> params;  // by the layer's parameter enum; absent ones are empty
  std::span<const Tensor> grads;   // the layer adds to them, or overwrites: see `writes`
  // Own tensors of the layer (spec/state/state.h), flat, in the order of its list; empty in
  // inference. They outlive the step.
  std::span<const Tensor> state = {};
  // Scales of parameters that are 8-bit codes, by the same enum; others are empty.
  std::span<const Tensor> scales = {};
  // Where quantising counts (kernels::QuantizeCounts), one row for each spec::Quantized; optional.
  Tensor counts = {};
  bool measures = false;     // count more than the largest magnitudes
  Tensor delayed_amax = {};  // by spec::Quantized, of the steps before: delayed scaling
  Stash& stash;
  device::Arena& scratch;
  const spec::Recipe& recipe;

  Tensor x, y;          // forward: input (slot x of this layer), output (slot x of the next)
  Tensor dy, dx;        // backward: gradient of the output (slot dy of this layer), of the input
  bool writes = false;  // overwrite weight gradients (Param::is_written) instead of adding to them
  bool writes_in_b = false;  // the same for weight gradients that B computes
  bool recomputing = false;  // recompute dropped slots only, from the kept ones; do not write y
  bool evaluating = false;   // no backward follows: gradients may be skipped
  // When rows that an earlier phase of this F or B has sent will have arrived. Null: such
  // transfers are made on `stream`.
  device::Event* arrival = nullptr;

  // The micro-batch: a flat stream of T tokens, cut into sequences. With cp: this rank's tokens,
  // and the offsets of all.
  ConstTensor tokens, labels, positions;  // [T] i32
  ConstTensor seq_offsets;                // i32, see kernels::AttentionForwardArgs
  Tensor token_losses = {};               // optional [T] f32: the head writes them
  int64_t sequences = 1, max_seq = 0;     // nominal
  bool has_documents = false;             // seq_offsets may split sequences into documents
  ConstTensor rope_table;                 // [max_seq, K] f32 if the model has RoPE
  ContextKeys context_keys = {};
  StepSink& sink;

  // Does this pass have to compute the slot?
  template <typename SlotEnum>
  bool fills(SlotEnum slot) const {
    return !recomputing || stash.fate(slot) == spec::Fate::recomputed;
  }
  // Returns the slot if the backward has to recompute it, otherwise an empty tensor.
  template <typename SlotEnum>
  Tensor recomputed_in_b(SlotEnum slot) const {
    return stash.fate(slot) == spec::Fate::recomputed_in_b ? stash[slot] : Tensor{};
  }
};

class Layer {
 public:
  virtual ~Layer() = default;
  // Number of phases of forward and of input gradient. The work of another micro-batch may be
  // interleaved between them.
  virtual int phases() const = 0;
  // REQUIRES: phases are run in order 0 .. phases() - 1.
  virtual void forward(Pass&, int phase) const = 0;
  // Also computes the gradients of norm weights and of some biases, and in tiles those of the
  // feed-forward's weights. REQUIRES: phases are run in
  // order phases() - 1 .. 0.
  virtual void backward_input(Pass&, int phase) const = 0;
  virtual void backward_weight(Pass&) const = 0;
};

struct Boundaries;

// Returns the part of the layer that this rank along tp and cp computes. The groups of the
// boundaries, if any, must outlive it.
std::unique_ptr<Layer> make_layer(const spec::LayerSpec&, const spec::LocalShape&,
                                  const spec::Backend&, const Boundaries&);

}  // namespace trireme::nn
