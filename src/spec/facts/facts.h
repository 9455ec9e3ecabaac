// SPDX-License-Identifier: Apache-2.0
// facts(): all that is known about one layer before anything runs: parameters and how they are cut,
// what is kept between forward and backward, scratch, and every operation with its FLOPs and bytes.
// The planner adds facts up, the engine allocates from them, the layer indexes its slots by the
// enums below, and the audit test compares the operations with those a layer really sends.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/shape.h"
#include "spec/facts/backend.h"
#include "spec/facts/comm_cost.h"
#include "spec/facts/op_cost.h"
#include "spec/facts/op_shapes.h"
#include "spec/model.h"
#include "spec/parallel/axes.h"
#include "spec/parallel/shard.h"
#include "spec/recipe.h"

namespace trireme::spec {

// ---- parameters
enum class Init : uint8_t { zeros, ones, normal };

struct Param {
  ShardSpec shard;
  Init init = Init::normal;
  float init_std = 0;
  bool decays = false;  // weight decay: matrices yes; norms and biases no
  bool tied_copy =
      false;  // the head's use of the embedding table: a gradient accumulator of its own, no state
  bool is_by_rows = false;   // its gradient is a sum over the rows of the stream that a rank has:
                             // all of them, except under sequence parallelism
  bool is_by_heads = false;  // its gradient is a sum over the heads that a rank along tp holds
  bool is_written = false;   // its gradient is matrix products, of which a leaf's first writes and
                             // the others add: it need not begin at zero
};

// Is the gradient that a rank makes along tp a part of the sum?
bool is_partial_along_tp(const Param&, bool sequence_parallel);

// "embedding", "blocks.3", "head": the prefix of its parameters' names.
std::string name_of_layer(const ModelSpec&, int layer);

// In the order of the layer's parameter enum below.
std::vector<Param> params_of(const ModelSpec&, int layer);

enum class EmbeddingParam : int { tokens, positions, count };
enum class BlockParam : int {
  norm1_weight,
  norm1_bias,
  qkv_weight,
  qkv_bias,
  q_norm,
  k_norm,
  out_weight,
  out_bias,
  norm2_weight,
  norm2_bias,
  up_weight,
  up_bias,
  down_weight,
  down_bias,
  count
};
enum class HeadParam : int { norm_weight, norm_bias, weight, count };

// ---- what outlives a phase
enum class Life : uint8_t {
  f_to_b,  // written by F, last read by B
  f_to_w,  // written by F, last read by W
  b_to_w,  // written by B, last read by W
};

struct Slot {
  const char* name = "";
  base::TensorSpec spec;  // empty shape: this layer has no such slot
  Life life = Life::f_to_b;
  bool recomputable = false;     // cheap to refill: dropped by Recompute::selective
  bool recomputed_in_b = false;  // read by W alone after F, and B can write it again on its way
  int replaces = -1;  // a b_to_w slot that is stored over this f_to_b slot, which is dead by then
  bool backward_only = false;  // written in F for B's sake: not there in inference
};

// Slots 0 and 1 of every layer: its input and the gradient of its output. A layer's output is
// written straight into the next layer's x, its input gradient into the previous layer's dy.
constexpr int slot_x = 0;
constexpr int slot_dy = 1;

enum class EmbeddingSlot : int { x, dy, count };
enum class BlockSlot : int {
  x,
  dy,
  stats1,
  h1,
  qkv,
  qk,
  qk_rstd,
  o,
  lse,
  x2,
  stats2,
  h2,
  up,
  act,
  dqkv,
  dx2,
  dup,
  dy_whole,  // all rows of dy and dx2, where a rank has its part of them
  dx2_whole,
  count
};
enum class HeadSlot : int { x, dy, stats, dh, count };

enum class Recompute : uint8_t { none, selective, full };
std::string_view name_of(Recompute);
std::optional<Recompute> recompute_from_name(std::string_view);

// Is this slot kept from F to B under the policy? (b_to_w slots are not a matter of recompute.)
bool is_kept(const Slot&, int index, Recompute);

// What becomes of a slot between F and B.
enum class Fate : uint8_t {
  kept,             // as F left it; of a b_to_w slot: F has not written it
  recomputed,       // dropped after F; R fills it again from kept slots
  recomputed_in_b,  // dropped after F; B writes it again. Not under full recompute, where R needs
                    // it to refill others
};
Fate fate_of(const Slot&, int index, Recompute);

// ---- scratch: tensors that live at one time inside a phase
struct ScratchSet {
  const char* name = "";
  std::vector<base::TensorSpec> tensors;
  bool in_forward = false;  // needed by F, too
};
int64_t bytes_of(const ScratchSet&);

// What a rank's share of a micro-batch looks like.
struct LocalShape {
  int64_t tokens = 0;  // sequences * seq_len, the same on all ranks along tp
  int64_t sequences = 1;
  int64_t seq_len = 0;
  int64_t head_chunk_rows = 0;  // rows of logits that exist at one time
  bool has_documents = false;   // sequences may be cut further
  Sizes mesh;
  bool sequence_parallel = false;  // of the stream between layers a rank has 1 / tp of the rows
  bool operator==(const LocalShape&) const = default;

  // Of the stream between layers.
  int64_t rows() const { return sequence_parallel ? tokens / mesh[Axis::tp] : tokens; }
};

// Of a rank with coordinate 0 along tp; the others do no more.
struct Facts {
  std::vector<Param> params;
  std::vector<Slot> stash;
  std::vector<ScratchSet> scratch;
  std::vector<OpCost> f, b, w;
  std::vector<OpCost> r;  // what refills the dropped slots under the given policy
  // Collectives among ranks along tp, in order.
  std::vector<CommCost> f_comm, b_comm, w_comm, r_comm;
};

// REQUIRES: 0 <= layer < model.layers.size(). Layers can be cut along tp; a mesh with more than one
// rank along another axis that cuts layers, or sizes that do not divide by tp, throw ConfigError.
Facts facts(const ModelSpec&, int layer, const LocalShape&, const Recipe&, Recompute,
            const Backend&);

// What a rank has of a block: heads and feed-forward width are its share along tp.
BlockSpec local_block(const BlockSpec&, const Sizes&);
// Is the gradient of this bias made in B, by a row that has the rows to be summed at hand?
// Otherwise W makes it, in the product for the weight's gradient.
bool is_bias_made_in_b(const BlockSpec&, const LocalShape&, BlockParam bias);
// The rows of the vocabulary that a rank has, without padding, and with it.
Range local_vocab(int64_t vocab, const Sizes&, const Coord&);
int64_t padded_vocab(int64_t vocab, const Sizes&);

// How a block's attention sees a micro-batch. REQUIRES: a local block.
AttentionShape attention_shape(const BlockSpec&, const LocalShape&, base::DType);

// Rows of logits in scratch: starting at multiples of the back end's grain.
base::TensorSpec logits_spec(const Backend&, int64_t rows, int64_t vocab, base::DType);

// Rows [seq_len, head_dim] of cos | sin that a stage keeps once for all its layers; empty without
// RoPE.
base::TensorSpec rope_table_spec(const ModelSpec&, int64_t seq_len);

}  // namespace trireme::spec
