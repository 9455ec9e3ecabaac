// SPDX-License-Identifier: Apache-2.0
// The two 8-bit floating-point formats, as storage types: arithmetic is always done in fp32.
//
//            exponent  mantissa  largest  smallest normal  smallest  infinity  NaN
//   E4M3     4, bias 7        3      448             2^-6      2^-9  none      0x7f, 0xff
//   E5M2    5, bias 15        2   57,344            2^-14     2^-16  0x7c      above 0x7c
//
// A conversion from fp32 saturates: it limits finite and infinite values to +-largest, then rounds
// to nearest, ties to even. A NaN becomes 0x7f, with its sign. This is what the instructions of
// NVIDIA GPUs do (cvt.rn.satfinite), and PyTorch's casts of values that are within the limits.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>

namespace trireme::base {

template <int mantissa_bits, int bias, int largest_code>
struct Float8 {
  uint8_t bits = 0;

  // Returns the largest finite value.
  static constexpr float largest() { return magnitude(largest_code); }

  Float8() = default;
  explicit Float8(float value) {
    const auto u = std::bit_cast<uint32_t>(value);
    const auto sign = static_cast<uint8_t>((u >> 31) << 7);
    const uint32_t rest = u & 0x7fffffffU;
    bits = static_cast<uint8_t>(sign | (rest > 0x7f800000U ? 0x7fU : code_of(rest)));
  }
  explicit operator float() const {
    const uint32_t rest = bits & 0x7fU;
    const float value = rest > nan_above ? std::bit_cast<float>(0x7fc00000U) : magnitude(rest);
    return (bits & 0x80U) != 0 ? -value : value;
  }
  bool operator==(const Float8&) const = default;

 private:
  static constexpr bool has_infinity = largest_code == 0x7b;
  static constexpr uint32_t nan_above = has_infinity ? 0x7cU : 0x7eU;

  // Returns the value of a code without its sign.
  static constexpr float magnitude(uint32_t code) {
    if (has_infinity && code == 0x7cU) return std::bit_cast<float>(0x7f800000U);
    const uint32_t exponent = code >> mantissa_bits;
    const uint32_t mantissa = code & ((1U << mantissa_bits) - 1U);
    if (exponent == 0) {  // mantissa * 2^(1 - bias - mantissa_bits)
      return static_cast<float>(mantissa) *
             std::bit_cast<float>(static_cast<uint32_t>(127 + 1 - bias - mantissa_bits) << 23);
    }
    return std::bit_cast<float>(((exponent + 127U - bias) << 23) |
                                (mantissa << (23 - mantissa_bits)));
  }

  // Returns the code of a value that is not NaN, given its bits without sign.
  static uint32_t code_of(uint32_t u) {
    u = std::min(u, std::bit_cast<uint32_t>(largest()));
    constexpr uint32_t smallest_normal = static_cast<uint32_t>(127 + 1 - bias) << 23;
    if (u < smallest_normal) {
      // A sum with 2^23 times the smallest value is rounded to a multiple of that value: to
      // nearest, ties to even.
      constexpr uint32_t magic = static_cast<uint32_t>(127 + 1 - bias - mantissa_bits + 23) << 23;
      const float sum = std::bit_cast<float>(u) + std::bit_cast<float>(magic);
      return std::bit_cast<uint32_t>(sum) - magic;
    }
    constexpr int dropped = 23 - mantissa_bits;
    constexpr uint32_t half = (1U << (dropped - 1)) - 1U;
    const uint32_t rounded = u + half + ((u >> dropped) & 1U);
    return std::min((rounded >> dropped) - ((127U - bias) << mantissa_bits),
                    static_cast<uint32_t>(largest_code));
  }
};

using E4m3 = Float8<3, 7, 0x7e>;
using E5m2 = Float8<2, 15, 0x7b>;

}  // namespace trireme::base
