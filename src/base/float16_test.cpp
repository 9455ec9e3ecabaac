// SPDX-License-Identifier: Apache-2.0
// Conversions to fp16 against exact arithmetic in double precision, as in float8_test.cpp.
#include "base/float16.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

namespace trireme::base {
namespace {

constexpr uint32_t infinity_code = 0x7c00;

float half_value(uint32_t code) {
  F16 half;
  half.bits = static_cast<uint16_t>(code);
  return static_cast<float>(half);
}

// The values of codes without sign up to that of infinity, which stands for 65,536: rounding to it
// is rounding to infinity.
std::vector<double> half_values() {
  std::vector<double> values;
  for (int code = 0; code <= static_cast<int>(infinity_code); ++code) {
    const int exponent = code >> 10, mantissa = code & 0x3ff;
    const int full = exponent == 0 ? mantissa : mantissa + 0x400;
    values.push_back(std::ldexp(static_cast<double>(full), std::max(exponent, 1) - 25));
  }
  return values;
}

uint32_t nearest_half(const std::vector<double>& values, float value) {
  const double magnitude = std::abs(static_cast<double>(value));
  auto code = static_cast<size_t>(std::lower_bound(values.begin(), values.end(), magnitude) -
                                  values.begin());
  if (code == values.size()) {
    code = infinity_code;
  } else if (code > 0) {
    const double up = values[code] - magnitude, down = magnitude - values[code - 1];
    if (down < up || (down == up && code % 2 == 1)) --code;
  }
  return static_cast<uint32_t>(code) | (std::signbit(value) ? 0x8000U : 0U);
}

TEST(Float16Test, every_code_has_its_value_and_returns) {
  const std::vector<double> values = half_values();
  EXPECT_EQ(values[infinity_code - 1], 65504);
  for (uint32_t code = 0; code < 0x10000; ++code) {
    const float value = half_value(code);
    const uint32_t rest = code & 0x7fffU;
    ASSERT_EQ(std::signbit(value), code >= 0x8000);
    if (rest < infinity_code) {
      ASSERT_EQ(static_cast<double>(std::abs(value)), values[rest]);
      ASSERT_EQ(F16(value).bits, code);
    } else if (rest == infinity_code) {
      ASSERT_TRUE(std::isinf(value));
      ASSERT_EQ(F16(value).bits, code);
    } else {
      ASSERT_TRUE(std::isnan(value));
      ASSERT_EQ(F16(value).bits, 0x7e00U | (code & 0x8000U));
    }
  }
}

TEST(Float16Test, ties_go_to_even_codes_and_their_neighbours_to_the_nearest) {
  const std::vector<double> values = half_values();
  for (size_t code = 0; code < infinity_code; ++code) {
    const auto tie = static_cast<float>((values[code] + values[code + 1]) / 2);
    ASSERT_EQ(static_cast<double>(tie), (values[code] + values[code + 1]) / 2);
    ASSERT_EQ(F16(tie).bits, code % 2 == 0 ? code : code + 1) << tie;
    ASSERT_EQ(F16(std::nextafter(tie, 0.0F)).bits, code) << tie;
    ASSERT_EQ(F16(std::nextafter(tie, 1e9F)).bits, code + 1) << tie;
    ASSERT_EQ(F16(-tie).bits, (code % 2 == 0 ? code : code + 1) | 0x8000U) << tie;
  }
}

TEST(Float16Test, limits) {
  EXPECT_EQ(F16(65519.996F).bits, 0x7bff);
  EXPECT_EQ(F16(65520.0F).bits, 0x7c00);  // the tie of 65,504 and 65,536
  EXPECT_EQ(F16(-65520.0F).bits, 0xfc00);
  EXPECT_EQ(F16(std::numeric_limits<float>::max()).bits, 0x7c00);
  EXPECT_EQ(F16(0x1p-24F).bits, 1);
  EXPECT_EQ(F16(0x1p-25F).bits, 0);
  EXPECT_EQ(F16(-0x1p-25F).bits, 0x8000);
  EXPECT_EQ(F16(0x1.000002p-25F).bits, 1);
  EXPECT_EQ(F16(-0.0F).bits, 0x8000);
  EXPECT_EQ(F16(std::bit_cast<float>(0x7f800001U)).bits, 0x7e00);
  EXPECT_EQ(F16(std::bit_cast<float>(0xffffffffU)).bits, 0xfe00);
}

TEST(Float16Test, every_251st_fp32_value_is_rounded_exactly) {
  const std::vector<double> values = half_values();
  int wrong = 0;
  for (uint64_t bits = 0; bits <= 0xffffffffU; bits += 251) {
    const auto value = std::bit_cast<float>(static_cast<uint32_t>(bits));
    if (std::isnan(value)) continue;
    if (F16(value).bits == nearest_half(values, value)) continue;
    if (++wrong < 5) ADD_FAILURE() << value << " became " << F16(value).bits;
  }
  EXPECT_EQ(wrong, 0);
}

}  // namespace
}  // namespace trireme::base
