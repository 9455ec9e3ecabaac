// SPDX-License-Identifier: Apache-2.0
// ExpertRows: how many rows the tensors of a mixture of experts have on a rank. They are budgets,
// known before the router has chosen; how many rows are used is on the device only.
//
// A rank routes its `tokens`. With one rank along ep and etp the pairs go straight to grouped rows,
// which always suffice. Otherwise a rank sends a block of `block` rows to each of the ep ranks; the
// etp ranks that share the same experts gather what all of them received, and group it.
#pragma once

#include <cstdint>

#include "spec/experts/moe_spec.h"
#include "spec/facts/backend.h"
#include "spec/parallel/axes.h"
#include "spec/recipe.h"

namespace trireme::spec {

struct LocalShape;

struct ExpertRows {
  int64_t tokens = 0;    // that this rank routes
  int64_t chosen = 0;    // K
  int64_t experts = 0;   // of the layer
  int64_t groups = 0;    // experts of this rank
  int ep = 1, etp = 1;   // ranks
  int64_t tile = 1;      // groups start at its multiples
  int64_t capacity = 0;  // rows of one expert from this rank's tokens; 0: no limit
  int64_t block = 0;     // rows for one rank along ep
  int64_t sent = 0;      // rows for all of them
  int64_t gathered = 0;  // rows that the ranks along etp received
  int64_t grouped = 0;   // rows grouped by expert
  bool operator==(const ExpertRows&) const = default;

  int64_t pairs() const { return tokens * chosen; }
  // Returns the rows that the experts of this rank are expected to compute.
  int64_t expected() const { return pairs() * etp; }
  bool is_local() const { return ep * etp == 1; }
};

// The row budget above which no routing can exceed a block: a token sends at most min(K, experts of
// a rank) rows to one rank.
double largest_row_budget(const MoeSpec&, int ep);

// Returns what starts of groups must be multiples of: scales along rows belong to one group.
int64_t expert_grain(const Recipe&);

// REQUIRES: experts divide by ep.
ExpertRows expert_rows(const MoeSpec&, const LocalShape&, const Backend&);

}  // namespace trireme::spec
