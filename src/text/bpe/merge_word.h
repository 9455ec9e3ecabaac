// SPDX-License-Identifier: Apache-2.0
// Byte-pair encoding of one word: merges pairs of neighbours, lowest rank first and leftmost first
// among equals, until no pair merges.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "text/bpe/pair_table.h"

namespace trireme::text {

// Memory that is kept from word to word. One thread at a time.
struct MergeScratch {
  struct Link {
    int32_t id;
    int32_t previous;  // -1: none
    int32_t next;      // -1: none; -2: merged into the symbol before
  };
  struct Candidate {
    uint32_t rank;
    int32_t at;
    int32_t id;
  };
  std::vector<uint32_t> ranks;
  std::vector<int32_t> products;
  std::vector<Link> links;
  std::vector<Candidate> heap;
};

// Merges in place and returns the number of symbols that are left at the front of `symbols`.
// Quadratic in short words, where that is fastest; n log n in long ones.
size_t merge_word(const PairTable& merges, std::span<int32_t> symbols, MergeScratch& scratch);

}  // namespace trireme::text
