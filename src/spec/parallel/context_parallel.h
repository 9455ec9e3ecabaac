// SPDX-License-Identifier: Apache-2.0
// What ranks along cp exchange for the attention of one block, and how even their work is. A rank
// has `rows` = seq_len / cp rows of each sequence. In ulysses groups of adjacent ranks exchange
// rows for heads; across the groups keys and values are gathered, or go round in a ring. Facts,
// planner and predicted traffic all take these numbers from here.
#pragma once

#include <cstdint>
#include <vector>

#include "base/dtype.h"
#include "spec/facts/comm_cost.h"
#include "spec/layout/layout.h"

namespace trireme::spec {

// The attention of one micro-batch in one block. Heads are those of a rank along tp.
struct ContextShape {
  int64_t sequences = 1, seq_len = 0;  // whole sequences
  int64_t heads = 1, kv_heads = 1, head_dim = 0;
  base::DType dtype = base::DType::bf16;      // of queries, keys and values
  base::DType grad_dtype = base::DType::f32;  // in which gradients of keys and values are summed
  int cp = 1, ulysses = 1;
  ContextKind kind = ContextKind::gather;

  int64_t rows() const { return sequences * seq_len / cp; }
  // Ranks across which keys and values are gathered or go round.
  int groups() const { return cp / ulysses; }
  // Heads of keys and values after the exchange: copies if there are fewer than ranks.
  int64_t exchanged_kv_heads() const;
};

// A collective of one rank, `count` times in a row.
struct ContextComm {
  CommKind kind = CommKind::all_gather;
  int ranks = 1, stride = 1;  // of its group; the stride counts ranks along cp
  // As in CommCost: of the whole tensor. For all_to_all and shift: of a rank's own tensor.
  int64_t elements = 0;
  base::DType dtype = base::DType::bf16;
  int count = 1;

  bool operator==(const ContextComm&) const = default;
};
int64_t sent_bytes(const ContextComm&);  // by a rank, all `count` of them
int64_t sent_bytes(const std::vector<ContextComm>&);

// In the order in which they run. With gather, keys and values are gathered again in the backward,
// one head of keys and values at a time, and their gradients are summed in `grad_dtype`. Empty if
// cp is 1.
struct ContextComms {
  std::vector<ContextComm> forward, backward;
};
ContextComms context_comm(const ContextShape&);

// Returns the bytes that attention takes beside its operands and results: keys and values of two
// heads (one is gathered while the other one is used) or of two neighbours, and in the backward
// gradients of keys and values.
int64_t context_scratch_bytes(const ContextShape&, bool backward);

// Returns the pairs of query and key of the rank with the most of them, relative to the mean, for
// sequences of one document.
double context_balance(ContextKind, ContextSlices, int cp, int ulysses, int64_t seq_len);

// Returns the rows that a sequence's length must be a multiple of: 2 cp, cp, or for blocks 2 cp
// times the block.
int64_t context_unit(ContextSlices, int cp);

// Returns the rows of a block: a chunk of seq_len / (2 cp) rows if it has at most 512, otherwise
// 512, 256 or 128, the largest that divides the chunk. 0: none does.
int64_t context_block(int64_t seq_len, int cp);

// Does the kind support the slices? A ring passes keys on in the order of fixed slices.
bool context_allows(ContextKind, ContextSlices);

}  // namespace trireme::spec
