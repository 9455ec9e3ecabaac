// SPDX-License-Identifier: Apache-2.0
// An endless order in which sources take turns by fixed shares: a pure function of (shares, key,
// position).
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "data/mixture/proportional_block.h"

namespace trireme::data {

// Where a sample of a mixture comes from.
struct SampleOrigin {
  int source = 0;
  int64_t sample = 0;  // number within the source, counted from 0
  bool operator==(const SampleOrigin&) const = default;
};

// Among the first i positions, every source has share * i samples, rounded up or down. Positions go
// up to 2^61. Finding the block of a position takes milliseconds at most; the blocks used last are
// kept (at most 0.4 MB plus 16 bytes per source). Any thread may call.
class ProportionalOrder {
 public:
  // REQUIRES: as ProportionalShares.
  ProportionalOrder(std::vector<int64_t> shares, base::RngKey key);

  // REQUIRES: 0 <= position < 2^61.
  SampleOrigin at(int64_t position) const;
  // Returns the samples of every source before `position`.
  std::vector<int64_t> counts(int64_t position) const;
  // Returns the position of a sample of a source.
  int64_t position_of(const SampleOrigin&) const;
  // Returns positions between which position_of() lies; costs no block.
  ItemWindow window_of(const SampleOrigin&) const;

 private:
  // Shared, because a thread may still read a block that another thread replaces.
  using BlockPointer = std::shared_ptr<const ProportionalBlock>;
  BlockPointer block_at(int64_t position) const;

  ProportionalShares shares_;
  base::RngKey key_;
  mutable std::mutex mutex_;                    // guards cached_
  mutable std::array<BlockPointer, 2> cached_;  // the last one first
};

}  // namespace trireme::data
