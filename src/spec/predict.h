// SPDX-License-Identifier: Apache-2.0
// Predictions that follow from model and plan alone. The engine allocates from the same facts, so
// each number can be compared with what was measured, byte for byte.
#pragma once

#include <vector>

#include "spec/plan.h"
#include "spec/stash_layout.h"

namespace trireme::spec {

// The facts of a stage's layers, in order.
std::vector<Facts> facts_of_stage(const ModelSpec&, const Plan&, int stage, const Backend&);

// Where its slots live. `layers` is facts_of_stage() of it.
StashLayout stash_layout_of_stage(const ModelSpec&, const Plan&, int stage,
                                  std::span<const Facts> layers);

// Memory of the ranks that run stage(s) of pp coordinate `pp_rank`.
MemoryTable predict_memory(const ModelSpec&, const Plan&, const Backend&, int pp_rank);

// Of all, with FLOPs.
Prediction predict(const ModelSpec&, const Plan&, const Backend&);

// Device tensors that one micro-batch of input takes: tokens, labels, positions, and the sequence
// offsets, of which there may be as many as tokens (one document per token) plus one.
std::vector<base::TensorSpec> input_specs(const LocalShape&);
// The sum of hashes of a step's samples, as bytes.
base::TensorSpec sample_hash_spec();
// Losses of single tokens, for evaluation.
base::TensorSpec token_losses_spec(const LocalShape&);

}  // namespace trireme::spec
