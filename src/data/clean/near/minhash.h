// SPDX-License-Identifier: Apache-2.0
// MinHash signatures (Broder 1997). Two sets of shingles agree in one value of their signatures
// with a probability that is their Jaccard similarity.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace trireme::data {

inline constexpr int max_permutations = 4096;

// A family of permutations of 32-bit hashes: x -> a x + b modulo 2^32, with a odd. The hashes of
// shingles are random numbers already, so that this simple family is unbiased on them. Constant
// after construction: usable from any thread.
class MinHash {
 public:
  // Equal arguments give equal permutations on every machine. REQUIRES: 1 <= permutations <=
  // max_permutations.
  explicit MinHash(int permutations, uint64_t seed = 1);

  int permutations() const { return permutations_; }

  // Fills `signature` with the smallest value of every permutation. The order and the repetitions
  // of shingles do not matter; without shingles all values are 2^32 - 1. REQUIRES: signature.size()
  // == permutations().
  void sign(std::span<const uint64_t> shingles, std::span<uint32_t> signature) const;

 private:
  int permutations_;
  std::vector<uint32_t> factors_, offsets_;  // padded to a multiple of the vector length
};

// Returns the part of equal values: an estimate of the Jaccard similarity J with the standard
// deviation sqrt(J (1 - J) / size). REQUIRES: equal sizes above 0.
double estimated_jaccard(std::span<const uint32_t> a, std::span<const uint32_t> b);

}  // namespace trireme::data
