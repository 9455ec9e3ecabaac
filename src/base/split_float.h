// SPDX-License-Identifier: Apache-2.0
// An fp32 number as two halves: the bf16 nearest to it, and its own lower 16 bits, which give it
// back exactly. A number halfway between two bf16 goes to the one farther from zero, not to the
// even one: so the lower bits alone say whether it was rounded up. All NaNs become one.
#pragma once

#include <bit>
#include <cstdint>

namespace trireme::base {

// The bf16 in the upper half, the lower bits in the lower one.
constexpr uint32_t split_bits(uint32_t float_bits) {
  constexpr uint32_t magnitude = 0x7fffffffU, infinity = 0x7f800000U, nan = 0x7fff7fffU;
  const bool is_nan = (float_bits & magnitude) > infinity;
  const uint32_t packed = ((float_bits + 0x8000U) & 0xffff0000U) | (float_bits & 0xffffU);
  return is_nan ? nan : packed;
}

// What split_bits() was given.
constexpr uint32_t joined_bits(uint32_t packed) { return packed - ((packed & 0x8000U) << 1U); }

inline void split_floats(const float* values, int64_t count, uint16_t* high, uint16_t* low) {
  for (int64_t i = 0; i < count; ++i) {
    const uint32_t packed = split_bits(std::bit_cast<uint32_t>(values[i]));
    high[i] = static_cast<uint16_t>(packed >> 16U);
    low[i] = static_cast<uint16_t>(packed);
  }
}

inline void join_floats(const uint16_t* high, const uint16_t* low, int64_t count, float* values) {
  for (int64_t i = 0; i < count; ++i) {
    const uint32_t packed = static_cast<uint32_t>(high[i]) << 16U | low[i];
    values[i] = std::bit_cast<float>(joined_bits(packed));
  }
}

}  // namespace trireme::base
