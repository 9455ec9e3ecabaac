// SPDX-License-Identifier: Apache-2.0
// The training state of a rank in host memory, between two engines of the same layout and different
// sequence length or batch.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/engine.h"
#include "kernels/step_state.h"

namespace trireme::train {

struct EngineState {
  std::vector<std::vector<float>> ranges;  // by engine::Engine::state()
  kernels::StepState step;

  int64_t bytes() const;  // of `ranges`
};

// Predicts EngineState::bytes() of a rank under a plan, the same for all sequence lengths, batches
// and blocks in bf16. It stays in host memory while the engine is replaced.
int64_t state_copy_bytes(const spec::ModelSpec&, const spec::Plan&, int rank);

// Waits for the device. Both engines must have the same model, mesh, shards and types. put_state()
// is collective.
EngineState take_state(engine::Engine&);
void put_state(engine::Engine&, const EngineState&);

}  // namespace trireme::train
