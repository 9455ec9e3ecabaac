// SPDX-License-Identifier: Apache-2.0
#include "base/float16.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace trireme::base {
namespace {

F16 code(uint32_t bits) {
  F16 value;
  value.bits = static_cast<uint16_t>(bits);
  return value;
}

// The value of a finite code by the definition of the format.
double value_of(uint32_t bits) {
  const int exponent = static_cast<int>((bits >> 10) & 0x1fU);
  const double mantissa = static_cast<double>(bits & 0x3ffU);
  const double size =
      exponent == 0 ? std::ldexp(mantissa, -24) : std::ldexp(1024 + mantissa, exponent - 25);
  return (bits & 0x8000U) != 0 ? -size : size;
}

TEST(Float16Test, all_codes_have_their_value_and_come_back) {
  for (uint32_t bits = 0; bits < 0x10000U; ++bits) {
    const auto value = static_cast<float>(code(bits));
    const uint32_t magnitude = bits & 0x7fffU;
    if (magnitude > 0x7c00U) {
      EXPECT_TRUE(std::isnan(value)) << bits;
      EXPECT_TRUE(std::isnan(static_cast<float>(F16(value)))) << bits;
      continue;
    }
    if (magnitude == 0x7c00U) {
      EXPECT_TRUE(std::isinf(value));
    } else {
      ASSERT_EQ(static_cast<double>(value), value_of(bits)) << bits;
    }
    EXPECT_EQ(std::signbit(value), (bits & 0x8000U) != 0);
    ASSERT_EQ(F16(value).bits, bits);
  }
}

// Between two neighbours: just below the middle, the middle (to the even code), just above.
TEST(Float16Test, rounds_to_nearest_with_ties_to_even) {
  for (uint32_t bits = 0; bits < 0x7c00U; ++bits) {
    const double below = value_of(bits);
    const double above = bits == 0x7bffU ? 65536 : value_of(bits + 1);
    const auto middle = static_cast<float>((below + above) / 2);  // exact
    const uint32_t even = (bits & 1U) == 0 ? bits : bits + 1;
    for (const uint32_t sign : {0U, 0x8000U}) {
      const float factor = sign == 0 ? 1.0F : -1.0F;
      ASSERT_EQ(F16(factor * middle).bits, even | sign) << bits;
      ASSERT_EQ(F16(factor * std::nextafter(middle, 0.0F)).bits, bits | sign) << bits;
      ASSERT_EQ(F16(factor * std::nextafter(middle, 1e9F)).bits, (bits + 1) | sign) << bits;
    }
  }
}

TEST(Float16Test, numbers_beyond_the_format) {
  const float infinity = std::numeric_limits<float>::infinity();
  for (const float large : {65520.0F, 65536.0F, 1e30F, infinity}) {
    EXPECT_EQ(F16(large).bits, 0x7c00U);
    EXPECT_EQ(F16(-large).bits, 0xfc00U);
  }
  EXPECT_EQ(F16(0x1p-25F).bits, 0U);  // half of the smallest code, to even
  EXPECT_EQ(F16(-0x1p-149F).bits, 0x8000U);
  EXPECT_EQ(F16(std::nextafter(0x1p-25F, 1.0F)).bits, 1U);
  EXPECT_TRUE(std::isnan(static_cast<float>(F16(std::numeric_limits<float>::quiet_NaN()))));
  EXPECT_TRUE(std::isnan(static_cast<float>(F16(std::numeric_limits<float>::signaling_NaN()))));
}

}  // namespace
}  // namespace trireme::base
