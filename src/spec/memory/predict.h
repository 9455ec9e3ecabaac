// SPDX-License-Identifier: Apache-2.0
// Predictions that follow from model and plan alone. The engine allocates from the same facts, so
// each number can be compared with what was measured, byte for byte.
#pragma once

#include <vector>

#include "spec/memory/stash_layout.h"
#include "spec/plan.h"

namespace trireme::spec {

// The facts of a stage's layers, in order.
std::vector<Facts> facts_of_stage(const ModelSpec&, const Plan&, int stage, const Backend&);

// The stages of a pp rank, and where their slots live.
std::vector<StashStage> stash_stages(const ModelSpec&, const Plan&, int pp_rank, const Backend&);
StashLayout stash_layout_of_rank(const Plan&, int pp_rank, std::span<const StashStage> stages);

// Rotations that the blocks of a pp rank share; empty without any.
base::TensorSpec rope_table_of_rank(const ModelSpec&, const Plan&, int pp_rank);

// ---- parts of a rank's memory
// Elements that a rank has of the parameter that is a tied copy of another layer's; 0 without one.
int64_t tied_elements(std::span<const Param>, const Sizes&);
// Adds parameters, gradients and optimizer state of a layer whose bucket has so many elements.
void add_state(const Plan&, int64_t elements, MemoryTable&);
int64_t step_state_memory();  // of the optimizer, once
// Batches on their way to the device: for each micro-batch of a step, and once.
struct StagingBytes {
  int64_t by_microbatch = 0, once = 0;
};
StagingBytes staging_bytes(const LocalShape&);

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
