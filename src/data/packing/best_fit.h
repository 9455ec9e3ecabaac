// SPDX-License-Identifier: Apache-2.0
// Best-fit decreasing: which pieces of documents share a sequence.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace trireme::data {

struct Packing {
  std::vector<int32_t> sequence;  // by piece
  int32_t sequences = 0;
};

// Takes pieces from the longest to the shortest (equal ones in their order) and puts each into the
// sequence with the least room in which it fits (the first of equal ones), or opens a sequence
// (Ding et al. 2024, "Fewer Truncations Improve Language Modeling"). A pure function, in
// O(n log n). REQUIRES: 1 <= length <= seq_len for every piece.
Packing best_fit(std::span<const int32_t> lengths, int64_t seq_len);

}  // namespace trireme::data
