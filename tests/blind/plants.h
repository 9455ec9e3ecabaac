// SPDX-License-Identifier: Apache-2.0
// Kinds of trouble that a blind test plants. Rank, time and size follow from a seed.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

namespace trireme::tests {

// What a case should be called, and what it was called.
struct BlindResult {
  bool has_run = false;   // false: the run did not start or did not end as planned
  std::string cause;      // the first that was found; empty: none
  int rank = -1;          // of that cause
  int planted_rank = -1;  // -1: no rank is to blame
  std::string details;    // one line
};

struct Plant {
  std::string name;
  std::string cause;  // expected first; empty: nothing or "unknown" is right
  BlindResult (*run)(uint64_t seed);
  bool is_quick;  // takes a few seconds
};
// The twelve kinds of the list, five that are not on it, and healthy runs.
std::span<const Plant> all_plants();

// Whether the first cause is the expected one, and no wrong rank was named.
bool is_right(const Plant& plant, const BlindResult& result);
// A rank was named that is not the planted one.
bool is_wrong_rank(const BlindResult& result);

}  // namespace trireme::tests
