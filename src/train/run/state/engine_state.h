// SPDX-License-Identifier: Apache-2.0
// The training state of a rank in host memory, between two engines. State is matched by the names
// of tensors and by boxes of their elements: the engines may have other sequence lengths, batches
// and shards.
#pragma once

#include <cstdint>
#include <vector>

#include "ckpt/generation/save.h"
#include "engine/engine.h"
#include "kernels/step_state.h"

namespace trireme::train {

struct EngineState {
  // Boxes of tensors, and the floats in which they lie (spec::Piece::local).
  struct Part {
    std::vector<ckpt::TensorPieces> tensors;
    std::vector<float> values;
  };
  std::vector<Part> parts;
  kernels::StepState step{};

  int64_t bytes() const;  // of all values
};

// Returns the ranges of the training state that the engine of a rank has under a plan, in the order
// of Engine::state(), without their values.
std::vector<engine::Engine::StateRange> state_ranges(const spec::ModelSpec&, const spec::Plan&,
                                                     int rank);
// Predicts EngineState::bytes() of a rank under a plan, the same for all sequence lengths, batches
// and blocks in bf16. It stays in host memory while the engine is replaced.
int64_t state_copy_bytes(const spec::ModelSpec&, const spec::Plan&, int rank);

// Takes the state of an engine, which is built from the model and stands at `coord`. Waits for the
// device.
EngineState take_state(engine::Engine&, const spec::ModelSpec&, const spec::Coord&);
// Fills the whole state of an engine. Throws Error that names a tensor which `state` does not have,
// or of which it lacks a box. Collective.
void put_state(engine::Engine&, const spec::ModelSpec&, const spec::Coord&,
               const EngineState& state);

}  // namespace trireme::train
