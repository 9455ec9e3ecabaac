// SPDX-License-Identifier: Apache-2.0
// What cleaning decided about every document.
#pragma once

#include <cstdint>
#include <vector>

namespace trireme::data {

enum class Outcome : uint8_t {
  kept,
  kept_without_shingles,  // white space only: cannot be compared
  rejected,
  repetition,
  exact_duplicate,
  near_duplicate,
};

// 9 bytes a document.
struct Outcomes {
  std::vector<Outcome> outcome;
  // Only duplicates have these, after resize_matches().
  std::vector<uint32_t> kept;     // the document that stays in its place
  std::vector<float> similarity;  // to that one

  bool is_kept(uint32_t document) const {
    return outcome[document] == Outcome::kept ||
           outcome[document] == Outcome::kept_without_shingles;
  }
  void resize_matches() {
    kept.resize(outcome.size());
    similarity.resize(outcome.size());
  }
  void remove(uint32_t document, Outcome reason, uint32_t kept_document, double value) {
    outcome[document] = reason;
    kept[document] = kept_document;
    similarity[document] = static_cast<float>(value);
  }
};

}  // namespace trireme::data
