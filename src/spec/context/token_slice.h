// SPDX-License-Identifier: Apache-2.0
// Which rows of a micro-batch each rank along cp has, and which keys its queries see. A row is
// numbered by sequence * seq_len + position in the micro-batch. Batches, labels, positions and
// attention read these functions; no other code knows how rows are cut.
//
// Ranks along cp form `groups` groups of `ulysses` adjacent ranks. Groups share the rows by the
// kind of slices; in a group the ranks take equal runs of the group's rows, in order. Before
// attention the ranks of a group exchange rows for heads, so each has all rows of the group.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "spec/context/context_kind.h"

namespace trireme::spec {

struct ContextSplit {
  int64_t sequences = 1, seq_len = 0;
  int ulysses = 1, groups = 1;  // cp = ulysses * groups
  ContextSlices slices = ContextSlices::zigzag;
  bool is_ring = false;  // between groups; false: they gather keys
  bool operator==(const ContextSplit&) const = default;

  int cp() const { return ulysses * groups; }
  int64_t tokens() const { return sequences * seq_len; }
  int64_t group_tokens() const { return tokens() / groups; }
  int64_t rank_tokens() const { return tokens() / cp(); }
  // Returns the calls of attention in a forward: one for the keys of each group in a ring.
  int key_sources() const { return is_ring ? groups : 1; }
};

using Rows = std::vector<int32_t>;  // ascending

// Return the rows of a group, and of a rank along cp. `seq_offsets`: the borders of documents in
// the micro-batch (the last element is its number of tokens), which only ContextSlices::blocks
// reads. REQUIRES: the rows divide (rules cp.*).
Rows group_rows(const ContextSplit&, int group, std::span<const int32_t> seq_offsets);
Rows rank_rows(const ContextSplit&, int cp_rank, std::span<const int32_t> seq_offsets);
// The rows of all groups, one after the other: the order of gathered keys.
Rows gathered_rows(const ContextSplit&, std::span<const int32_t> seq_offsets);

// Tokens of a block under ContextSlices::blocks: at least 512 if sequences are that long.
int64_t block_tokens(const ContextSplit&);

// The keys that each query row sees, as a range of indexes.
struct KeyRanges {
  std::vector<int32_t> begin, end;

  int64_t pairs() const;
};
// Keys in the order of rows: causal, within the document.
KeyRanges keys_of_rows(const Rows& queries, std::span<const int32_t> seq_offsets);
// Keys are the rows `keys`, numbered by their place in it.
KeyRanges keys_among(const Rows& queries, const Rows& keys, std::span<const int32_t> seq_offsets);

// The keys of a source (ContextSplit::key_sources()) that the rows of a group see.
KeyRanges keys_of_source(const ContextSplit&, int group, int source,
                         std::span<const int32_t> seq_offsets);

// Returns the (query, key) pairs of each group, for one head.
std::vector<int64_t> pairs_of_groups(const ContextSplit&, std::span<const int32_t> seq_offsets);
// Returns the same for whole sequences of one document, on average over groups.
double mean_pairs(const ContextSplit&);
// Returns the offsets of equal sequences without borders of documents.
std::vector<int32_t> equal_offsets(const ContextSplit&);

}  // namespace trireme::spec
