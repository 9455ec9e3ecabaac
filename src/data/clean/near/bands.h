// SPDX-License-Identifier: Apache-2.0
// Locality-sensitive hashing of MinHash signatures: a signature is cut into bands of rows, and two
// documents are candidates if all rows of one band are equal. With b bands of r rows that happens
// with probability 1 - (1 - J^r)^b.
#pragma once

#include <cstdint>
#include <span>

namespace trireme::data {

struct Bands {
  int bands = 0, rows = 0;
  bool operator==(const Bands&) const = default;
};

// Returns the probability that documents of similarity `jaccard` are candidates.
double detection(const Bands&, double jaccard);

// Returns the bands that fit the permutations and give the fewest candidates below the threshold
// (the smallest integral of detection() from 0 to the threshold), of those that detect pairs at the
// threshold with at least `min_recall`. Candidates are compared afterwards, so that a false one
// costs time while a missed one is lost: the sum of both errors that datasketch minimises would
// lose one pair in fourteen at 0.1 above a threshold of 0.8. If no bands detect that many, returns
// those that detect the most. REQUIRES: 1 <= permutations, 0 < threshold <= 1.
Bands choose_bands(int permutations, double threshold, double min_recall = 0.97);

// Fills `keys` with one hash per band. REQUIRES: bands * rows <= signature.size(), keys.size() ==
// bands.
void band_keys(const Bands&, std::span<const uint32_t> signature, std::span<uint64_t> keys);

}  // namespace trireme::data
