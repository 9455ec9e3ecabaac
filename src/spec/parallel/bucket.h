// SPDX-License-Identifier: Apache-2.0
// The parameters of one layer as one flat vector: what is gathered, reduced and updated together.
// Parameters, gradients, master weights and moments all use the same element offsets. Parameters
// with weight decay come first, so an optimizer sees at most two flat ranges per bucket; among each
// of the two, those that are cut along tp.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "spec/facts/facts.h"

namespace trireme::spec {

struct BucketEntry {
  int param = 0;  // index into the layer's params
  int64_t offset = 0, elements = 0;
  bool operator==(const BucketEntry&) const = default;
};

struct BucketLayout {
  std::vector<BucketEntry> entries;
  int64_t decayed = 0;  // elements [0, decayed) have weight decay
  // Of parameters that are cut along tp: with weight decay, and without.
  std::array<Range, 2> cut;
  // Of those that all ranks along tp have: gradients by rows (Param::is_by_rows), and after them
  // such as are partial sums in any case.
  Range by_rows, partial;
  // Where gradients must begin at zero: all but what the first product of a leaf writes
  // (Param::is_written).
  std::vector<Range> zeroed;
  // With padding: each entry to the shard grain, the whole to as many grains for each of the dp *
  // zero ranks that share it.
  int64_t elements = 0;
};

// The elements of a bucket that so many data ranks share, from those without that padding.
int64_t padded_elements(int64_t elements, int64_t data_ranks);

// Tied copies and parameters that the layer does not have (empty shape) are left out.
BucketLayout bucket_layout(std::span<const Param>, const Sizes&);

}  // namespace trireme::spec
