// SPDX-License-Identifier: Apache-2.0
// A pseudo-random order of 0 .. size - 1 that is computed, not stored.
#pragma once

#include <cstdint>

#include "base/rng.h"

namespace trireme::data {

// A Feistel network over the smallest domain 2^2h >= size, with philox as its round function; a
// result outside [0, size) is mapped again until it falls inside (cycle walking), on average at
// most four times. A value type: constant memory and time per call for any size.
class Permutation {
 public:
  // REQUIRES: size >= 1.
  Permutation(base::RngKey key, int64_t size);

  // REQUIRES: 0 <= index < size.
  int64_t operator()(int64_t index) const;

 private:
  base::RngKey key_;
  uint64_t size_;
  int half_bits_;
};

}  // namespace trireme::data
