// SPDX-License-Identifier: Apache-2.0
// The own tensors of a block under a recipe with delayed scaling (spec/state/state.h): largest
// magnitudes of its quantised activations and gradients, by Quantized up to the first weight.
#pragma once

#include <vector>

#include "spec/state/state.h"

namespace trireme::spec {

constexpr const char* amax_state = "fp8.amax";
constexpr const char* amax_history_state = "fp8.history";
// How many matrices of a block have a history: all but weights.
constexpr int64_t delayed_count = static_cast<int64_t>(Quantized::qkv_weight);

// Returns the tensors of a block: magnitudes of the step, [delayed_count], which are 0 between
// steps, and those of the steps before, [delayed_count * history]. None without delayed scaling.
// Blocks that stay in bf16 have them too, so that layouts that differ in this exchange state; their
// history is 0.
std::vector<StateTensor> float8_state(const Recipe&);

// Returns the memory of the largest magnitudes of the history, of a rank's blocks in 8 bits; an
// empty shape without delayed scaling or blocks.
base::TensorSpec delayed_amax_spec(const Recipe&, int64_t float8_blocks);

}  // namespace trireme::spec
