// SPDX-License-Identifier: Apache-2.0
#include "data/samples/permutation.h"

#include <algorithm>
#include <bit>

#include "base/check.h"

namespace trireme::data {

Permutation::Permutation(base::RngKey key, int64_t size)
    : key_(key),
      size_(static_cast<uint64_t>(size)),
      half_bits_(std::max(1, (static_cast<int>(std::bit_width(size_ - 1)) + 1) / 2)) {
  TRIREME_CHECK(size >= 1, "a permutation of {}", size);
}

int64_t Permutation::operator()(int64_t index) const {
  TRIREME_CHECK(index >= 0 && static_cast<uint64_t>(index) < size_, "{} of {}", index, size_);
  constexpr int rounds = 8;
  const uint64_t mask = (uint64_t{1} << half_bits_) - 1;
  auto value = static_cast<uint64_t>(index);
  do {
    uint64_t left = value >> half_bits_, right = value & mask;
    for (uint64_t round = 0; round < rounds; ++round) {
      const uint64_t mixed = left ^ (base::philox(key_, round << 32 | right)[0] & mask);
      left = right;
      right = mixed;
    }
    value = left << half_bits_ | right;
  } while (value >= size_);
  return static_cast<int64_t>(value);
}

}  // namespace trireme::data
