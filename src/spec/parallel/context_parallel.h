// SPDX-License-Identifier: Apache-2.0
// What rules and planner need to know about context parallelism: which slices are legal, and how
// even the work of ranks is. token_slice.h deals the rows, spec/facts/context_facts.cpp lists the
// collectives of a block.
#pragma once

#include <cstdint>

#include "spec/parallel/context_kind.h"

namespace trireme::spec {

// Returns the pairs of query and key of the group of ranks with the most of them, relative to the
// mean, for sequences of one document (token_slice.h).
double context_balance(ContextSlices, int groups, int64_t seq_len);

// Returns the rows that a sequence's length must be a multiple of: 2 cp for zigzag and blocks, cp
// for the others.
int64_t context_unit(ContextSlices, int cp);

// Does the kind support the slices? A ring passes keys on in the order of fixed slices.
bool context_allows(ContextKind, ContextSlices);

}  // namespace trireme::spec
