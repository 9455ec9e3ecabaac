// SPDX-License-Identifier: Apache-2.0
// IEEE fp16 as a storage type: arithmetic is always done in fp32. Converts without the compiler's
// _Float16, which not every processor that we support has in GCC 12.
#pragma once

#include <bit>
#include <cstdint>

namespace trireme::base {

// 5 bits of exponent (bias 15), 10 of mantissa. The largest value is 65,504, the smallest normal
// one 2^-14, the smallest 2^-24. Rounds to nearest, ties to even; what rounds above the largest
// becomes infinity; a NaN stays a (quiet) NaN.
struct F16 {
  uint16_t bits = 0;

  F16() = default;
  explicit F16(float value) {
    const auto u = std::bit_cast<uint32_t>(value);
    const auto sign = static_cast<uint32_t>((u >> 16) & 0x8000U);
    const uint32_t rest = u & 0x7fffffffU;
    bits = static_cast<uint16_t>(sign | code_of(rest));
  }
  explicit operator float() const {
    const uint32_t sign = static_cast<uint32_t>(bits & 0x8000U) << 16;
    const uint32_t exponent = (bits >> 10) & 0x1fU, mantissa = bits & 0x3ffU;
    if (exponent == 0x1fU) return std::bit_cast<float>(sign | 0x7f800000U | (mantissa << 13));
    if (exponent == 0) {
      const float value = static_cast<float>(mantissa) * 0x1p-24F;
      return sign != 0 ? -value : value;
    }
    return std::bit_cast<float>(sign | ((exponent + 112U) << 23) | (mantissa << 13));
  }
  bool operator==(const F16&) const = default;

 private:
  static uint32_t code_of(uint32_t u) {
    if (u > 0x7f800000U) return 0x7e00U;
    if (u >= 0x47800000U) return 0x7c00U;  // 65,536 and above
    if (u < 0x38800000U) {                 // below 2^-14: a sum with 0.5 rounds to 2^-24
      return std::bit_cast<uint32_t>(std::bit_cast<float>(u) + 0.5F) - 0x3f000000U;
    }
    const uint32_t rounded = u + 0xfffU + ((u >> 13) & 1U);
    return (rounded >> 13) - (112U << 10);
  }
};

}  // namespace trireme::base
