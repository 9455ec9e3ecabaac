// SPDX-License-Identifier: Apache-2.0
// One block of the order in which the sources of a mixture take turns, computed without the blocks
// before it.
//
// A source of share w takes its item k (from 0) in a slot of [floor(k / w), ceil((k + 1) / w)).
// If every item lies in its window, the count of the source after i slots differs from w * i by
// less than 1, for every i. Assigning each slot to the item with the earliest end among those whose
// window has begun keeps all windows (Baruah et al. 1996, "Proportionate progress").
//
// To start at any slot T, a state is computed in two steps. (1) At T - L, every source has
// floor(w * (T - L)) items, and the sources whose next item ends first have one more, until the
// counts add up. All later windows can be kept from there. (2) L slots are assigned from there on;
// L >= 2 / w makes the result reachable from every earlier block. A block then assigns the slots
// between the states at its two ends. Last, seeded exchanges of slots that keep all windows make
// the order irregular.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/rng.h"

namespace trireme::data {

struct ProportionalBlock {
  int64_t begin = 0;              // first slot
  std::vector<uint16_t> sources;  // by slot
  std::vector<uint32_t> items;    // by slot: items of its source before it in the block
  std::vector<int64_t> counts;    // by source: items before the block
};

// The shares of a mixture and the sizes that follow from them.
struct ProportionalShares {
  // REQUIRES: positive, in number at most max_mixture_sources, sum at most 10^15, none below
  // min_mixture_share of the sum (integer_shares()).
  explicit ProportionalShares(std::vector<int64_t> shares);

  std::vector<int64_t> share;
  int64_t total = 0;
  int64_t lookback = 0;     // slots, L above
  int64_t block_slots = 0;  // a power of two, at least the lookback
};

// Takes O(block_slots * log(sources)) for any block. REQUIRES: 0 <= block, its end is below 2^62.
ProportionalBlock proportional_block(const ProportionalShares&, base::RngKey, int64_t block);

// Slots of item `item` of a source: the first one, and the one after the last.
struct ItemWindow {
  int64_t first = 0, end = 0;
};
ItemWindow item_window(const ProportionalShares&, int source, int64_t item);

}  // namespace trireme::data
