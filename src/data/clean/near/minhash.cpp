// SPDX-License-Identifier: Apache-2.0
// Sketch: a permutation of a shingle is one multiplication, one addition and one minimum. Sixteen
// permutations are held in registers while all shingles pass; with vectors of four, two of which
// start per cycle, 128 permutations take some 20 cycles a shingle.
#include "data/clean/near/minhash.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "base/check.h"
#include "base/rng.h"

namespace trireme::data {
namespace {

// Vectors of GCC and Clang: the instructions of the machine, or a loop where it has none.
using Lanes = uint32_t __attribute__((vector_size(16)));
constexpr size_t lanes = 4, tile_vectors = 4, tile = lanes * tile_vectors;

Lanes loaded(const uint32_t* from) {
  Lanes vector;
  std::memcpy(&vector, from, sizeof(vector));
  return vector;
}

// Sixteen permutations of all shingles.
void sign_tile(std::span<const uint64_t> shingles, const uint32_t* factors, const uint32_t* offsets,
               std::array<uint32_t, tile>& out) {
  Lanes a[tile_vectors], b[tile_vectors], min[tile_vectors];
  for (size_t v = 0; v < tile_vectors; ++v) {
    a[v] = loaded(factors + v * lanes);
    b[v] = loaded(offsets + v * lanes);
    min[v] = Lanes{} - 1;
  }
  for (const uint64_t shingle : shingles) {
    const Lanes x = Lanes{} + static_cast<uint32_t>(shingle >> 32);
    for (size_t v = 0; v < tile_vectors; ++v) {
      const Lanes value = a[v] * x + b[v];
      min[v] = value < min[v] ? value : min[v];
    }
  }
  std::memcpy(out.data(), min, sizeof(min));
}

}  // namespace

MinHash::MinHash(int permutations, uint64_t seed) : permutations_(permutations) {
  TRIREME_CHECK(permutations >= 1 && permutations <= max_permutations, "{} permutations",
                permutations);
  const size_t padded = (static_cast<size_t>(permutations) + tile - 1) / tile * tile;
  const base::RngKey key = base::rng_key(seed, "minhash");
  for (size_t i = 0; i < padded; ++i) {
    const auto random = base::philox(key, i);
    factors_.push_back(random[0] | 1U);
    offsets_.push_back(random[1]);
  }
}

void MinHash::sign(std::span<const uint64_t> shingles, std::span<uint32_t> signature) const {
  TRIREME_CHECK(signature.size() == static_cast<size_t>(permutations_), "{} values of {}",
                signature.size(), permutations_);
  std::array<uint32_t, tile> values{};
  for (size_t first = 0; first < signature.size(); first += tile) {
    sign_tile(shingles, factors_.data() + first, offsets_.data() + first, values);
    const size_t count = std::min(tile, signature.size() - first);
    std::copy_n(values.begin(), count, signature.begin() + static_cast<std::ptrdiff_t>(first));
  }
}

double estimated_jaccard(std::span<const uint32_t> a, std::span<const uint32_t> b) {
  TRIREME_CHECK(a.size() == b.size() && !a.empty(), "{} and {} values", a.size(), b.size());
  uint32_t equal = 0;
  for (size_t i = 0; i < a.size(); ++i) equal += a[i] == b[i] ? 1 : 0;
  return static_cast<double>(equal) / static_cast<double>(a.size());
}

}  // namespace trireme::data
