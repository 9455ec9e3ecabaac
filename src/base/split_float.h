// SPDX-License-Identifier: Apache-2.0
// Split fp32: an fp32 number as a high part, the nearest bf16, and a low part, its lower 16 bits,
// from which it is restored exactly. A number halfway between two bf16 is rounded away from zero,
// not to even: so the low part alone shows whether it was rounded up. All NaNs become the same NaN.
#pragma once

#include <bit>
#include <cstdint>

namespace trireme::base {

// Returns the high part in the upper 16 bits and the low part in the lower 16 bits.
constexpr uint32_t split_bits(uint32_t float_bits) {
  constexpr uint32_t magnitude = 0x7fffffffU, infinity = 0x7f800000U, nan = 0x7fff7fffU;
  const bool is_nan = (float_bits & magnitude) > infinity;
  const uint32_t packed = ((float_bits + 0x8000U) & 0xffff0000U) | (float_bits & 0xffffU);
  return is_nan ? nan : packed;
}

// The inverse of split_bits().
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
