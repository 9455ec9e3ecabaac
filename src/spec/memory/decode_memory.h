// SPDX-License-Identifier: Apache-2.0
// The memory of a decoder (engine/decode/decoder.h), which continues sequences token by token with
// a cache of keys and values. The decoder allocates exactly these tensors.
#pragma once

#include <cstdint>
#include <vector>

#include "base/shape.h"
#include "spec/experts/expert_rows.h"
#include "spec/facts/backend.h"
#include "spec/model.h"

namespace trireme::spec {

struct DecodePlan {
  base::DType dtype = base::DType::f32;  // of weights, activations and cache
  int64_t sequences = 1;                 // continued at once
  int64_t capacity = 0;                  // cached tokens of a sequence, at most the model's max_seq
  int64_t prompt_rows = 512;             // tokens of a prompt that are computed at once

  // The rows of the largest batch.
  int64_t max_rows() const { return sequences > prompt_rows ? sequences : prompt_rows; }
};

// Activations of T = max_rows() tokens; each exists once and is reused by every layer.
struct DecodeTensors {
  base::TensorSpec x;          // [T, D] the residual stream
  base::TensorSpec h;          // [T, D] of a norm
  base::TensorSpec stats;      // [T, statistics of a norm]
  base::TensorSpec qkv;        // [T, (H + 2 G) K]
  base::TensorSpec qk_rstd;    // [T, H + G]; empty without norms of heads
  base::TensorSpec o;          // [T, H K]
  base::TensorSpec up;         // [T, F or 2 F], of feed-forwards and shared experts; may be empty
  base::TensorSpec act;        // [T, F]
  base::TensorSpec workspace;  // of attention_cached; may be empty
  base::TensorSpec logits;     // [sequences, V] f32
};
DecodeTensors decode_tensors(const ModelSpec&, const DecodePlan&, const Backend&);

// Activations of blocks with E experts of width F, of which a token chooses K: rows of tokens, and
// R rows of pairs grouped by expert (spec/experts/expert_rows.h). All are empty without experts.
struct DecodeExpertTensors {
  base::TensorSpec logits;      // [T, E] f32
  base::TensorSpec choice;      // [T, K] i32
  base::TensorSpec weights;     // [T, K] f32
  base::TensorSpec place;       // [T, K] i32
  base::TensorSpec pair;        // [R] i32
  base::TensorSpec counts;      // [E] i32
  base::TensorSpec starts;      // [E + 1] i32
  base::TensorSpec row_weight;  // [R] f32
  base::TensorSpec rows;        // [R, D] inputs of experts, then their results
  base::TensorSpec up;          // [R, 2 F]
  base::TensorSpec act;         // [R, F]
};
DecodeExpertTensors decode_expert_tensors(const ModelSpec&, const DecodePlan&, const Backend&);
// Returns the rows of experts for this many tokens.
ExpertRows decode_expert_rows(const MoeSpec&, int64_t tokens, const Backend&);

// Integers of a batch: tokens, positions, cache rows to write, first cache rows, lengths.
constexpr int64_t decode_inputs = 5;
base::TensorSpec decode_inputs_spec(const DecodePlan&);  // [decode_inputs, T] i32

// Keys and values of one block: [sequences * capacity, 2 G, K].
base::TensorSpec decode_cache_spec(const BlockSpec&, const DecodePlan&);

// The parameters of a layer, in the order of params_of(); absent and tied ones are empty.
std::vector<base::TensorSpec> decode_params(const ModelSpec&, int layer, base::DType);
// The own tensors of a layer that forward passes read, which are allocated with the parameters.
std::vector<StateTensor> decode_state(const ModelSpec&, int layer);

struct DecodeMemory {
  int64_t params = 0, cache = 0, scratch = 0, staging = 0;
  int64_t total() const { return params + cache + scratch + staging; }
  bool operator==(const DecodeMemory&) const = default;
};
// Bytes as an Arena takes them.
DecodeMemory decode_memory(const ModelSpec&, const DecodePlan&, const Backend&);

// Returns the bytes that one step reads at least: every weight but the embedding's table once (the
// head reads all of a tied table), and `cached` tokens of each sequence. It counts the experts that
// the sequences choose on average if all choices are equally likely.
int64_t decode_step_bytes(const ModelSpec&, const DecodePlan&, int64_t cached);

}  // namespace trireme::spec
