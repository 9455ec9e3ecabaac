// SPDX-License-Identifier: Apache-2.0
// One function per layer kind, each in a separate file, and the cost formulas that they share.
#pragma once

#include <functional>
#include <initializer_list>
#include <vector>

#include "spec/experts/expert_rows.h"
#include "spec/facts/facts.h"

namespace trireme::spec::internal {

struct FactsInput {
  const ModelSpec& model;
  int layer;
  const LocalShape& shape;
  const Recipe& recipe;
  Recompute recompute;
  const Backend& backend;
};

// The operations of a phase, and the collectives between them.
struct Work {
  std::vector<OpCost> ops;
  std::vector<CommCost> comm;
};

Facts embedding_facts(const EmbeddingSpec&, const FactsInput&);
Facts block_facts(const BlockSpec&, const FactsInput&);
Facts head_facts(const HeadSpec&, const FactsInput&);

std::vector<Param> embedding_params(const EmbeddingSpec&, const ModelSpec&);
std::vector<Param> block_params(const BlockSpec&, const ModelSpec&, int layer);
std::vector<Param> head_params(const HeadSpec&, const ModelSpec&);

// An empty shape marks a parameter that this layer does not have.
Param make_param(std::string name, std::vector<int64_t> shape, Init init, float init_std);

// Returns the cut of the rows of the vocabulary along tp.
Cut vocab_cut(int64_t vocab);

// Collectives along tp: whole() gathers all rows of the stream under sequence parallelism; sum()
// adds up partial sums, which leaves each rank its rows under sequence parallelism and all rows
// otherwise. One rank has none.
struct StreamComm {
  explicit StreamComm(const FactsInput&, int64_t width);

  void whole(std::vector<CommCost>&, int64_t rows) const;
  void whole(std::vector<CommCost>& costs) const { whole(costs, tokens); }
  void sum(std::vector<CommCost>&, int64_t rows) const;
  void sum(std::vector<CommCost>& costs) const { sum(costs, tokens); }

  int ranks;
  bool parts_rows;
  int64_t tokens, width;
  base::DType dtype;
};

// The attention of a block between the rotation and the projection: ops, collectives along cp and
// scratch, in the order of nn/attention/attention_context.cpp. `local` is a rank's block along tp.
struct ContextFacts {
  ContextFacts(const BlockSpec& local, const FactsInput&);

  bool has_ulysses() const { return split.ulysses > 1; }
  bool is_local() const { return split.cp() == 1; }
  void exchange_heads(Work&) const;  // q, k and v of some heads for all rows of the group
  void forward(Work&) const;         // o, exchanged back
  void backward(Work&) const;        // from dout to dq, dk and dv
  // The rank's rows of q, k and v after rotation, of which only the exchanged heads are kept.
  base::TensorSpec own_rows() const;
  // In forward, and in backward with the gradient of o.
  std::vector<ScratchSet> forward_scratch() const;
  std::vector<ScratchSet> backward_scratch() const;

  ContextSplit split;
  BlockSpec block;    // of the whole group's heads
  BlockSpec part;     // with a rank's heads inside attention
  int64_t T, Tu, S;   // rows of the rank, of its group, of the micro-batch
  int64_t K, HK, KV;  // widths of a head, and of part's queries and keys
  base::DType act;
  AttentionShape shape;  // of a group that has all rows
  const Backend& backend;

 private:
  base::TensorSpec rows(int64_t n, int64_t width) const { return {{n, width}, act}; }
  base::TensorSpec f32(int64_t n, int64_t width) const { return {{n, width}, base::DType::f32}; }
  void copy(Work&, const base::TensorSpec& d, base::DType from) const;
  void copy(Work& work, const base::TensorSpec& d) const { copy(work, d, d.dtype); }
  void exchange(Work&, int64_t width) const;
  void gather_keys(Work&, int64_t kv_heads) const;
  std::vector<base::TensorSpec> core_scratch(bool is_backward) const;
};

// Norm, limit and rotation of q and k between projection and attention: slots, ops and scratch, in
// the order of nn/attention/rotation.cpp. `local` is a rank's block along tp.
struct RotationFacts {
  RotationFacts(const BlockSpec& local, const FactsInput&);

  void slots(std::vector<Slot>&, bool by_heads) const;  // qkv, qk, qk_rstd
  void forward(Work&) const;                            // REQUIRES: the block has RoPE
  void backward(Work&) const;
  std::vector<ScratchSet> scratch() const;

  const BlockSpec& s;
  int64_t T, Q, K;  // tokens, widths of q and of k
  base::DType act, grad;

 private:
  base::TensorSpec row(int64_t width) const { return {{T, width}, act}; }
  base::TensorSpec stats() const { return {{T, 1}, base::DType::f32}; }
  void norm(Work&) const;
};

// The feed-forward of a block in tiles: ops, collectives along tp and scratch, in the order of
// nn/tiled_feed_forward.cpp. `local` is a rank's block along tp.
struct TileFacts {
  TileFacts(const BlockSpec& local, const FactsInput&);

  void forward(Work&) const;
  void backward(Work&) const;  // with all weight gradients
  double recomputed_flops() const;
  std::vector<ScratchSet> scratch() const;

  const BlockSpec& s;
  const FactsInput& in;
  int ranks;
  int64_t parts;     // ranks whose rows a tile gathers
  int64_t max_rows;  // of the rank's rows in a tile
  bool norms_sum_biases;

 private:
  template <typename Body>
  void for_each(Body body) const;
  base::TensorSpec row(int64_t rows, int64_t width) const;
  base::TensorSpec stats(int64_t rows) const;
  void norm_and_up(Work&, int64_t n) const;
};

// The feed-forward of a block as a mixture of experts, without its norm: slots, scratch, ops and
// collectives, in the order of nn/experts/. `local` is a rank's block along tp, whose shared
// experts have the rank's share of their width.
struct ExpertFacts {
  ExpertFacts(const BlockSpec& local, const FactsInput&);

  using Is = std::function<bool(BlockSlot)>;

  void slots(std::vector<Slot>&) const;
  // `recomputes` is true for slots that B recomputes.
  std::vector<ScratchSet> scratch(const Is& recomputes) const;
  // Fill the slots for which `fills` is true, and y if `makes_y`. `keeps` is true for transposed
  // codes that are written.
  void forward(Work&, bool makes_y, const Is& fills, const Is& keeps) const;
  // `norm` adds the backward of norm2.
  void backward(Work&, const Is& recomputes, const std::function<void()>& norm) const;
  void weights(Work&) const;

  const BlockSpec& s;
  const FactsInput& in;
  const MoeSpec& moe;
  ExpertRows rows;
  base::DType act;
  const Float8Recipe* fp8;  // null: products in the storage type

 private:
  // ---- with products in 8 bits (float8_expert_facts.cpp)
  void codes_slots(std::vector<Slot>&) const;
  std::vector<ScratchSet> codes_scratch(const Is& recomputes) const;
  // From rows of h2 to results of experts; from rows of dy to those of dh2.
  void codes_forward(Work&, bool makes_y, const Is& fills, const Is& keeps) const;
  void codes_backward(Work&, const Is& recomputes) const;
  void quantize(Work&, int64_t width, bool by_rows, bool by_columns) const;
  void transpose_weights(Work&, int64_t out, int64_t in_width) const;
  bool has_amax() const { return fp8->finds_amax(); }
  base::TensorSpec codes(int64_t n, int64_t width) const { return codes_spec(fp8->rows, n, width); }

  base::TensorSpec row(int64_t n, int64_t width) const;
  base::TensorSpec f32(int64_t n, int64_t width) const;
  base::TensorSpec i32(int64_t n, int64_t width) const;
  base::TensorSpec flat_f32(int64_t n) const;
  base::TensorSpec flat_i32(int64_t n) const;
  void router_backward(Work&) const;
  int64_t load_rows() const;  // of the slot `load`: 0 without an auxiliary loss
  int load_ranks() const;     // over which it is summed
  void route(Work&, bool decides) const;
  void exchange(Work&, int64_t width, base::DType) const;
  void send(Work&, int64_t width, base::DType) const;
  void receive(Work&, int64_t width, base::DType) const;
  void dispatch(Work&, int64_t width, base::DType) const;
  void give_back(Work&, int64_t width, base::DType) const;
};

struct GemmShape {
  int64_t m = 0, n = 0, k = 0;
  GemmLayout layout = GemmLayout::nn;
  base::DType operands = base::DType::f32;
  base::DType result = base::DType::f32;
  bool accumulates = false;
};

// The products of a block in 8 bits, and what quantises their operands: slots, scratch, ops and
// collectives, in the order of nn/attention/ and nn/feed_forward.cpp. `local` is a rank's block
// along tp. In a block with experts only the attention part applies.
struct Float8Facts {
  Float8Facts(const BlockSpec& local, const FactsInput&, const RotationFacts&, const ContextFacts&);

  using Is = std::function<bool(BlockSlot)>;

  void slots(std::vector<Slot>&) const;
  std::vector<ScratchSet> attention_scratch(const Is& recomputes) const;
  std::vector<ScratchSet> feed_forward_scratch(const Is& recomputes) const;
  // `is_first`: not a recompute. `fills` is true for slots that are written, `keeps` for transposed
  // codes that are written.
  void attention_forward(Work&, bool is_first, const Is& fills, const Is& keeps) const;
  void feed_forward(Work&, bool is_first, const Is& fills, const Is& keeps) const;
  // `recomputes` is true for slots that B recomputes.
  void feed_forward_backward(Work&, const Is& recomputes) const;
  void attention_backward(Work&, const Is& recomputes) const;
  void feed_forward_weights(Work&) const;
  void attention_weights(Work&) const;

  const BlockSpec& s;
  const FactsInput& in;
  const RotationFacts& rotation;
  const ContextFacts& context;
  const Float8Recipe& fp8;
  int64_t T, R, D, HK, N, U, F;
  int ranks;
  bool parts_rows, is_gelu, norms_sum_biases, has_amax;
  bool pairs_dup;  // SwiGLU's backward and the quantisation of dup are queued as one op
  base::DType act, grad;

 private:
  base::TensorSpec stream() const { return {{R, D}, act}; }
  base::TensorSpec row(int64_t width) const { return {{T, width}, act}; }
  base::TensorSpec whole() const { return parts_rows ? row(D) : base::TensorSpec{}; }
  base::TensorSpec codes(int64_t rows, int64_t cols) const {
    return codes_spec(fp8.rows, rows, cols);
  }
  base::TensorSpec weight_codes(int64_t rows, int64_t cols) const {
    return codes_spec(fp8.weights, rows, cols);
  }
  void amax(Work&, const base::TensorSpec& x) const;
  void quantize(Work&, int64_t width, bool by_rows, bool by_columns) const;
  void product(Work&, const GemmShape&, std::initializer_list<base::TensorSpec> extra) const;
  void norm(Work&, bool is_first, bool by_columns) const;
  void norm_backward(Work&, bool recomputes) const;
  void project(Work&, int64_t width) const;
  void input_gradient(Work&, int64_t in_width, int64_t out_width,
                      std::initializer_list<base::TensorSpec> extra) const;
  void gradient_product(Work&, int64_t in_width, int64_t out_width,
                        std::initializer_list<base::TensorSpec> extra) const;
  void weight_gradient(Work&, int64_t out_width, int64_t in_width, BlockParam bias) const;
};

// Return the bytes that an operation moves, without rounding to grains.
int64_t moved(const base::TensorSpec&);
int64_t moved(std::initializer_list<base::TensorSpec>);

// Returns the cost of a memory-bound op: `main` gives m, n and dtype; every tensor of `all` moves
// once.
OpCost streaming(OpKind, const base::TensorSpec& main, std::initializer_list<base::TensorSpec> all);

// `extra`: bias, residual and epilogue tensors.
OpCost gemm_cost(const GemmShape&, std::initializer_list<base::TensorSpec> extra);

}  // namespace trireme::spec::internal
