// SPDX-License-Identifier: Apache-2.0
// facts(): the static description of one layer: parameters and how they are cut, activations kept
// between forward and backward, scratch, and every operation with its FLOPs and bytes. The planner
// adds facts up, the engine allocates from them, the layer indexes its slots by the enums below,
// and the audit test compares the operations with those that the layer enqueues.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/shape.h"
#include "spec/context/token_slice.h"
#include "spec/facts/backend.h"
#include "spec/facts/comm_cost.h"
#include "spec/facts/op_cost.h"
#include "spec/facts/op_shapes.h"
#include "spec/model.h"
#include "spec/parallel/axes.h"
#include "spec/parallel/mesh_view.h"
#include "spec/parallel/shard.h"
#include "spec/recipe.h"
#include "spec/state/state.h"

namespace trireme::spec {

// ---- parameters
enum class Init : uint8_t { zeros, ones, normal };

struct Param {
  ShardSpec shard;
  ParamView view = ParamView::dense;  // which ranks sum its gradient and share its state
  Init init = Init::normal;
  float init_std = 0;
  bool decays = false;  // weight decay: matrices yes; norms and biases no
  bool tied_copy =
      false;  // the head's use of the embedding table: a separate gradient accumulator, no state
  bool is_by_rows = false;   // its gradient is a sum over the rows of the stream that a rank has:
                             // all of them, except under sequence parallelism
  bool is_by_heads = false;  // its gradient is a sum over the heads that a rank along tp holds
  bool is_written = false;   // its gradient is matrix products, of which a leaf's first writes and
                             // the others add: it need not begin at zero
  // Rows of the matrices of a block that lie one after the other in it (q, k, v). Empty for other
  // parameters.
  std::vector<int64_t> matrices = {};
  // Under a recipe of fp8 the matrices of every block are in buckets without other parameters,
  // which may be 8-bit codes.
  bool is_matrix = false;
};

// Is the gradient on a rank along tp a partial sum?
bool is_partial_along_tp(const Param&, bool sequence_parallel);

// Returns "embedding", "blocks.3" or "head": the prefix of its parameters' names.
std::string name_of_layer(const ModelSpec&, int layer);

// Returns the parameters in the order of the layer's parameter enum below.
std::vector<Param> params_of(const ModelSpec&, int layer);
// The same, with Param::is_matrix as the recipe of a plan requires.
std::vector<Param> params_of(const ModelSpec&, int layer, const Recipe&);

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
  // In a block with experts up_weight and down_weight are those of all experts.
  router_weight,
  shared_up_weight,
  shared_down_weight,
  count
};
enum class HeadParam : int { norm_weight, norm_bias, weight, count };

// ---- slots: tensors that outlive a phase
enum class Life : uint8_t {
  f_to_b,  // written by F, last read by B
  f_to_w,  // written by F, last read by W
  b_to_w,  // written by B, last read by W
};

struct Slot {
  const char* name = "";
  base::TensorSpec spec;  // empty shape: this layer has no such slot
  Life life = Life::f_to_b;
  bool recomputable = false;     // cheap to recompute: dropped by Recompute::selective
  bool recomputed_in_b = false;  // after F only W reads it, and B can recompute it
  int replaces = -1;  // a b_to_w slot that is stored over this f_to_b slot, which is dead by then
  bool backward_only = false;  // written in F for B only: absent in inference
  bool is_decision = false;    // kept under every policy: recompute must not decide again
  bool skips_f = false;        // F writes it only if it is kept, not if it is recomputed
  bool is_transient = false;   // lives from one phase of F, R or B to the next, under every policy
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
  dy_whole,  // all rows of dy and dx2, under sequence parallelism
  dx2_whole,
  heads,    // q, k, v of some heads for all rows of the group, under Ulysses
  o_heads,  // and their o
  // ---- products in 8 bits (float8_facts.cpp): there are no h1, h2, act, dqkv and dup. With
  // experts (float8_expert_facts.cpp) h2_t, act_t, dup_t and dy_t are those of the rows; there are
  // no act, dup, x_rows and dy_rows
  amax,  // largest magnitudes by Quantized, of this micro-batch
  h1_t,  // transposed codes, for weight gradients
  h2_t,
  act_t,
  dqkv_t,
  dx2_t,
  dup_t,
  dy_t,
  // ---- a mixture of experts (expert_facts.cpp); up, act and dup are those of the rows
  logits,      // of the router
  choice,      // experts of each token
  load,        // of the experts, for the auxiliary loss
  place,       // row of each pair
  pair,        // pair of each row
  arranged,    // with several ranks: the grouped row of each received row
  source,      //   and the received row of each grouped row
  starts,      // first rows of the groups
  row_weight,  // router's weight of each row
  x_rows,      // rows of h2, grouped by expert
  dy_rows,     // rows of dy
  dlogits,
  outgoing,  // rows on their way to experts on other ranks
  incoming,
  answers,  // and back
  returned,
  shared_up,  // of the shared experts
  shared_act,
  shared_dup,
  count
};
enum class HeadSlot : int { x, dy, stats, dh, count };

enum class Recompute : uint8_t { none, selective, full };
std::string_view name_of(Recompute);
std::optional<Recompute> recompute_from_name(std::string_view);

// Is this slot kept from F to B under the policy? (b_to_w slots are not a matter of recompute.)
bool is_kept(const Slot&, int index, Recompute);

// What happens to a slot between F and B.
enum class Fate : uint8_t {
  kept,             // unchanged since F; a b_to_w slot is not written yet
  recomputed,       // dropped after F; R recomputes it from kept slots
  recomputed_in_b,  // dropped after F; B recomputes it. Not under full recompute, where R needs it
                    // to recompute others
};
Fate fate_of(const Slot&, int index, Recompute);

// ---- scratch: tensors that are live together inside a phase
struct ScratchSet {
  const char* name = "";
  std::vector<base::TensorSpec> tensors;
  bool in_forward = false;  // needed by F, too
};
int64_t bytes_of(const ScratchSet&);

// The shape of a rank's share of a micro-batch.
struct LocalShape {
  int64_t tokens = 0;  // sequences * seq_len / cp, the same on all ranks along tp
  int64_t sequences = 1;
  int64_t seq_len = 0;          // of a whole sequence
  int64_t head_chunk_rows = 0;  // rows of logits that exist at one time
  int64_t ffn_rows = 0;         // see Layout
  bool has_documents = false;   // sequences may be cut further, at borders of documents
  Sizes mesh;
  bool sequence_parallel = false;  // a rank has 1 / tp of the rows of the stream between layers
  double row_budget = 1;           // see Layout
  double expert_capacity = 0;      // see Layout
  int64_t expert_grain = 1;        // groups of an expert's rows start at its multiples
  int ulysses = 1;                 // see ContextSplit; 1 if cp is 1
  ContextSlices slices = ContextSlices::zigzag;
  bool is_ring = false;
  bool operator==(const LocalShape&) const = default;

  ContextSplit context() const {
    return {.sequences = sequences,
            .seq_len = seq_len,
            .ulysses = ulysses,
            .groups = mesh[Axis::cp] / ulysses,
            .slices = slices,
            .is_ring = is_ring};
  }
  // Returns the rank's rows of the stream between layers.
  int64_t rows() const { return sequence_parallel ? tokens / mesh[Axis::tp] : tokens; }
  bool has_ffn_tiles() const { return ffn_rows > 0; }
  // Returns the rank's rows of the stream in a tile of the feed-forward; the last tile may have
  // fewer. Under sequence parallelism a tile has as many rows of every rank.
  int64_t tile_rows() const {
    const int64_t parts = sequence_parallel ? mesh[Axis::tp] : 1;
    return std::min(rows(), std::max<int64_t>(1, ffn_rows / parts));
  }
};

// The facts of a rank with coordinate 0 along tp; the other ranks need no more.
struct Facts {
  std::vector<Param> params;
  std::vector<StateTensor> state;  // of training: see state_of()
  std::vector<Slot> stash;
  std::vector<ScratchSet> scratch;
  std::vector<OpCost> f, b, w;
  std::vector<OpCost> r;          // recomputes the dropped slots under the given policy
  double b_recomputed_flops = 0;  // of the operations of b that repeat some of f
  // Collectives among ranks along tp, cp, ep and etp, in order.
  std::vector<CommCost> f_comm, b_comm, w_comm, r_comm;
};

// `recipe` is that of a plan. REQUIRES: 0 <= layer < model.layers.size(). Throws ConfigError for
// sizes that do not divide.
Facts facts(const ModelSpec&, int layer, const LocalShape&, const Recipe&, Recompute,
            const Backend&, const OptimizerTypes& = {});

// Returns all persistent tensors of a layer in training: weights, the optimizer's tensors, own
// ones.
std::vector<StateTensor> state_of(const ModelSpec&, int layer, const OptimizerTypes&,
                                  const Recipe&);

// Returns a rank's part of a block: heads and feed-forward width are its share along tp.
BlockSpec local_block(const BlockSpec&, const Sizes&);
// Does B compute the gradient of this bias, in an op that reads the rows to be summed? Otherwise W
// computes it, in the product for the weight's gradient.
bool is_bias_made_in_b(const BlockSpec&, const LocalShape&, BlockParam bias);
// Return the rows of the vocabulary that a rank has: their range without padding, and their number
// with padding.
Range local_vocab(int64_t vocab, const Sizes&, const Coord&);
int64_t padded_vocab(int64_t vocab, const Sizes&);

// Returns a rank's part of a local block inside attention: under Ulysses it has some heads of all
// rows of its group. Key/value heads that several ranks read are on each of them.
BlockSpec attention_block(const BlockSpec& local, const LocalShape&);
// Returns how many of a rank's key/value heads are gathered together along cp, in at most eight
// groups.
int64_t gathered_kv_heads(int64_t kv_heads);
// Returns the attention problem of a micro-batch in a block. REQUIRES: an attention_block().
AttentionShape attention_shape(const BlockSpec&, const LocalShape&, base::DType);

// Rows of logits in scratch; each row starts at a multiple of the back end's grain.
base::TensorSpec logits_spec(const Backend&, int64_t rows, int64_t vocab, base::DType);

// Rows [seq_len, head_dim] of cos | sin, which a stage stores once for all its layers; empty
// without RoPE.
base::TensorSpec rope_table_spec(const ModelSpec&, int64_t seq_len);

}  // namespace trireme::spec
