// SPDX-License-Identifier: Apache-2.0
// Counter-based random numbers: a pure function of (key, index), so any rank of any layout gets
// the same value for the same global element. Only integer arithmetic and one correctly rounded
// fp32 product are used, so every device and compiler produces the same bits. All functions are
// constexpr, because device code may call constexpr functions.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace trireme::base {

using RngKey = uint64_t;

// Distinct streams for distinct (seed, name); FNV-1a of the name, mixed with the seed.
RngKey rng_key(uint64_t seed, std::string_view name);

// Philox 4x32 with ten rounds (Salmon et al., 2011): 128 random bits for one counter.
constexpr std::array<uint32_t, 4> philox(RngKey key, uint64_t index) {
  auto c0 = static_cast<uint32_t>(index), c1 = static_cast<uint32_t>(index >> 32);
  uint32_t c2 = 0, c3 = 0;
  auto k0 = static_cast<uint32_t>(key), k1 = static_cast<uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = uint64_t{0xD2511F53U} * c0;
    const uint64_t p1 = uint64_t{0xCD9E8D57U} * c2;
    const uint32_t n0 = static_cast<uint32_t>(p1 >> 32) ^ c1 ^ k0;
    const uint32_t n2 = static_cast<uint32_t>(p0 >> 32) ^ c3 ^ k1;
    c1 = static_cast<uint32_t>(p1);
    c3 = static_cast<uint32_t>(p0);
    c0 = n0;
    c2 = n2;
    k0 += 0x9E3779B9U;
    k1 += 0xBB67AE85U;
  }
  return {c0, c1, c2, c3};
}

// Returns 64 bits that identify an id, for sums that change if an id is missing or occurs twice.
constexpr uint64_t hash_of(uint64_t id) {
  const auto r = philox(0x73616d706c657321U, id);
  return (uint64_t{r[0]} << 32) | r[1];
}

// A uniform integer in [0, bound). The bias is below bound / 2^64. REQUIRES: bound > 0.
constexpr uint64_t rng_below(RngKey key, uint64_t index, uint64_t bound) {
  const auto r = philox(key, index);
  const uint64_t bits = (uint64_t{r[0]} << 32) | r[1];
  __extension__ using Wide = unsigned __int128;
  return static_cast<uint64_t>((static_cast<Wide>(bits) * bound) >> 64);
}

// A uniform number in [0, 1) with 53 random bits.
constexpr double rng_uniform(RngKey key, uint64_t index) {
  const auto r = philox(key, index);
  const uint64_t bits = (uint64_t{r[0]} << 32) | r[1];
  return static_cast<double>(bits >> 11) * 0x1p-53;
}

// Mean 0, variance 1: the sum of eight independent 16-bit uniforms (Irwin-Hall), centred and
// scaled. It is bounded by +-4.9 like a truncated normal, with excess kurtosis -0.15. The centred
// sum is an integer below 2^21, exact in fp32, so the product with `std_dev / 53509.9...` is the
// only rounding.
constexpr float rng_normal(RngKey key, uint64_t index, float std_dev) {
  const auto r = philox(key, index);
  int32_t sum = 0;
  for (const uint32_t word : r) sum += static_cast<int32_t>((word & 0xffffU) + (word >> 16));
  const int32_t centred = 2 * sum - 8 * 65535;  // twice the deviation, so that it is an integer
  // sqrt(8 * (2^32 - 1) / 12) * 2, the standard deviation of `centred`.
  constexpr double deviation = 107019.83984290015;
  return static_cast<float>(centred) * static_cast<float>(std_dev / deviation);
}

}  // namespace trireme::base
