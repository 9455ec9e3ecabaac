// SPDX-License-Identifier: Apache-2.0
// Predictions from model and plan alone. The engine allocates from the same facts, so each number
// can be compared with the measured one, byte for byte.
#pragma once

#include <vector>

#include "spec/memory/stash_layout.h"
#include "spec/parallel/bucket.h"
#include "spec/plan.h"

namespace trireme::spec {

// Returns the facts of a stage's layers, in order.
std::vector<Facts> facts_of_stage(const ModelSpec&, const Plan&, int stage, const Backend&);

// Return the stages of a pp rank, and the places of their slots.
std::vector<StashStage> stash_stages(const ModelSpec&, const Plan&, int pp_rank, const Backend&);
StashLayout stash_layout_of_rank(const Plan&, int pp_rank, std::span<const StashStage> stages);

// The RoPE table that the blocks of a pp rank share; empty without RoPE.
base::TensorSpec rope_table_of_rank(const ModelSpec&, const Plan&, int pp_rank);

// ---- parts of a rank's memory
// Returns the rank's elements of the tied copy of another layer's parameter; 0 without one.
int64_t tied_elements(std::span<const Param>, const Sizes&);
// Adds parameters, gradients and state of a layer. Of its bucket only elements and matrices are
// read.
void add_state(const Plan&, std::span<const StateTensor>, const BucketLayout&, MemoryTable&);
// Device memory of the end of a step.
struct StepMemory {
  base::TensorSpec record;   // of this rank (step_record_bytes)
  base::TensorSpec squares;  // WideSums: of the gradient by layer, then of the updates
  base::TensorSpec signals;  // StepState, then the totals of all ranks (step_totals_bytes)
};
// Returns the blocks of a rank whose products are in 8 bits.
std::vector<int> float8_layers(const ModelSpec&, const Plan&, int pp_rank);
// Returns the memory in which they count what quantising did; an empty shape if there are none.
constexpr int64_t quantize_counts_bytes = 48;
base::TensorSpec numerics_spec(const ModelSpec&, const Plan&, int pp_rank);
base::TensorSpec numerics_spec(int64_t float8_blocks);

StepMemory step_memory(const Plan&);
int64_t bytes_of(const StepMemory&);
// Staged batches: bytes for each micro-batch of a step, and once per rank.
struct StagingBytes {
  int64_t by_microbatch = 0, once = 0;
};
StagingBytes staging_bytes(const LocalShape&, bool keeps_losses);

// Memory of the ranks that run stage(s) of pp coordinate `pp_rank`.
MemoryTable predict_memory(const ModelSpec&, const Plan&, const Backend&, int pp_rank);

// Returns memory of all pp coordinates, and FLOPs.
Prediction predict(const ModelSpec&, const Plan&, const Backend&);

// The device tensors of one micro-batch of input: tokens, labels, positions of the rank's rows, and
// the sequence offsets of the whole micro-batch, of which there may be as many as tokens (one
// document per token) plus one. If groups along cp share the rows: the first and the last key of
// each query row, for each source of keys, and if keys are gathered, their rows (gathered_rows()).
std::vector<base::TensorSpec> input_specs(const LocalShape&);
// What comes with the micro-batches of a step (batch_counts_bytes), as bytes.
base::TensorSpec batch_counts_spec();
// Losses of the tokens of a micro-batch: of one for evaluation, or of all of a step
// (Plan::keeps_losses).
base::TensorSpec token_losses_spec(const LocalShape&);

}  // namespace trireme::spec
