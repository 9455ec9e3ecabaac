// SPDX-License-Identifier: Apache-2.0
// IEEE fp16 as a storage type: arithmetic is always done in fp32. Converts without the compiler's
// _Float16, which not every processor that we support has in GCC 12, and without branches, so that
// loops become vector code.
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
    const uint32_t code = bits & 0x7fffU, shifted = code << 13;
    // A subnormal code is the mantissa of a number that is 2^-14 larger.
    const float raised = std::bit_cast<float>(shifted + (113U << 23)) - 0x1p-14F;
    const uint32_t above = shifted + ((code >= 0x7c00U ? 224U : 112U) << 23);
    const uint32_t value = code < 0x400U ? std::bit_cast<uint32_t>(raised) : above;
    return std::bit_cast<float>(sign | value);
  }
  bool operator==(const F16&) const = default;

 private:
  static uint32_t code_of(uint32_t u) {
    // Below 2^-14 a sum with 0.5 rounds to a multiple of 2^-24.
    const uint32_t small = std::bit_cast<uint32_t>(std::bit_cast<float>(u) + 0.5F) - 0x3f000000U;
    const uint32_t normal = ((u + 0xfffU + ((u >> 13) & 1U)) >> 13) - (112U << 10);
    const uint32_t large = u > 0x7f800000U ? 0x7e00U : 0x7c00U;
    const uint32_t rounded = u < 0x38800000U ? small : normal;
    return u >= 0x47800000U ? large : rounded;  // 65,536 and above
  }
};

}  // namespace trireme::base
