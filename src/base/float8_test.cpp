// SPDX-License-Identifier: Apache-2.0
// Conversions to 8-bit floats against exact arithmetic in double precision: every finite value of a
// format is sign * mantissa * 2^exponent, and the nearest of them is found by comparing distances.
#include "base/float8.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "base/dtype.h"

namespace trireme::base {
namespace {

struct E4m3Format {
  using Type = E4m3;
  static constexpr int mantissa_bits = 3, bias = 7;
  static constexpr int finite_codes = 0x7f;  // without sign
  static constexpr double largest = 448;
};
struct E5m2Format {
  using Type = E5m2;
  static constexpr int mantissa_bits = 2, bias = 15;
  static constexpr int finite_codes = 0x7c;
  static constexpr double largest = 57344;
};

// The finite values of a format that have no sign, by code.
template <typename Format>
std::vector<double> finite_values() {
  std::vector<double> values;
  for (int code = 0; code < Format::finite_codes; ++code) {
    const int exponent = code >> Format::mantissa_bits;
    const int mantissa = code & ((1 << Format::mantissa_bits) - 1);
    const int full = exponent == 0 ? mantissa : mantissa + (1 << Format::mantissa_bits);
    values.push_back(std::ldexp(static_cast<double>(full),
                                std::max(exponent, 1) - Format::bias - Format::mantissa_bits));
  }
  return values;
}

// Returns the code of the nearest value, the even one of two; the largest for what is beyond.
uint8_t nearest_code(const std::vector<double>& values, float value) {
  const double magnitude = std::abs(static_cast<double>(value));
  const auto above = std::lower_bound(values.begin(), values.end(), magnitude);
  auto code = static_cast<size_t>(above - values.begin());
  if (code == values.size()) {
    code = values.size() - 1;
  } else if (code > 0) {
    const double up = values[code] - magnitude, down = magnitude - values[code - 1];
    if (down < up || (down == up && code % 2 == 1)) --code;
  }
  return static_cast<uint8_t>(code | (std::signbit(value) ? 0x80U : 0U));
}

template <typename Type>
uint8_t code_of(float value) {
  return Type(value).bits;
}
template <typename Type>
float value_of(uint8_t code) {
  Type converted;
  converted.bits = code;
  return static_cast<float>(converted);
}

template <typename Format>
class Float8Test : public testing::Test {};
using Formats = testing::Types<E4m3Format, E5m2Format>;
TYPED_TEST_SUITE(Float8Test, Formats);

TYPED_TEST(Float8Test, every_code_has_its_value_and_returns) {
  using Type = typename TypeParam::Type;
  const std::vector<double> values = finite_values<TypeParam>();
  EXPECT_EQ(values.back(), TypeParam::largest);
  EXPECT_EQ(static_cast<double>(Type::largest()), TypeParam::largest);
  for (int code = 0; code < TypeParam::finite_codes; ++code) {
    for (const int sign : {0, 0x80}) {
      const auto bits = static_cast<uint8_t>(code | sign);
      const float value = value_of<Type>(bits);
      EXPECT_EQ(static_cast<double>(std::abs(value)), values[static_cast<size_t>(code)]);
      EXPECT_EQ(std::signbit(value), sign != 0);  // also of zero
      EXPECT_EQ(code_of<Type>(value), bits);
    }
  }
}

TYPED_TEST(Float8Test, codes_that_are_not_finite) {
  using Type = typename TypeParam::Type;
  for (const int sign : {0, 0x80}) {
    for (int code = TypeParam::finite_codes; code < 0x80; ++code) {
      const float value = value_of<Type>(static_cast<uint8_t>(code | sign));
      const bool is_infinity = std::is_same_v<Type, E5m2> && code == 0x7c;
      EXPECT_EQ(std::isinf(value), is_infinity) << code;
      EXPECT_EQ(std::isnan(value), !is_infinity) << code;
      EXPECT_EQ(std::signbit(value), sign != 0) << code;
    }
  }
}

TYPED_TEST(Float8Test, ties_go_to_even_codes_and_their_neighbours_to_the_nearest) {
  using Type = typename TypeParam::Type;
  const std::vector<double> values = finite_values<TypeParam>();
  constexpr float infinity = std::numeric_limits<float>::infinity();
  for (size_t code = 0; code < values.size(); ++code) {
    // The last tie is that of the largest value and what would come after it: both saturate.
    const double next =
        code + 1 < values.size() ? values[code + 1] : 2 * values[code] - values[code - 1];
    const auto tie = static_cast<float>((values[code] + next) / 2);
    ASSERT_EQ(static_cast<double>(tie), (values[code] + next) / 2) << "not an fp32 value";
    for (const float sign : {1.0F, -1.0F}) {
      for (const float value : {std::nextafter(tie, 0.0F), tie, std::nextafter(tie, infinity),
                                std::nextafter(static_cast<float>(values[code]), infinity)}) {
        EXPECT_EQ(code_of<Type>(sign * value), nearest_code(values, sign * value)) << value;
      }
    }
    const size_t even = code + 1 < values.size() && code % 2 == 1 ? code + 1 : code;
    EXPECT_EQ(code_of<Type>(tie), even) << tie;
  }
}

TYPED_TEST(Float8Test, values_beyond_the_largest_saturate_and_nan_stays) {
  using Type = typename TypeParam::Type;
  constexpr auto last = static_cast<uint8_t>(TypeParam::finite_codes - 1);
  for (const float value :
       {std::nextafter(Type::largest(), 1e9F), 2 * Type::largest(), 1e30F,
        std::numeric_limits<float>::max(), std::numeric_limits<float>::infinity()}) {
    EXPECT_EQ(code_of<Type>(value), last) << value;
    EXPECT_EQ(code_of<Type>(-value), last | 0x80) << value;
  }
  for (const uint32_t nan : {0x7f800001U, 0x7fc00000U, 0x7fffffffU}) {
    EXPECT_EQ(code_of<Type>(std::bit_cast<float>(nan)), 0x7f);
    EXPECT_EQ(code_of<Type>(std::bit_cast<float>(nan | 0x80000000U)), 0xff);
  }
}

TYPED_TEST(Float8Test, small_values_become_subnormals_and_zeros_with_their_sign) {
  using Type = typename TypeParam::Type;
  const float smallest = value_of<Type>(1);
  EXPECT_EQ(static_cast<double>(smallest),
            std::ldexp(1.0, 1 - TypeParam::bias - TypeParam::mantissa_bits));
  EXPECT_EQ(code_of<Type>(0.0F), 0);
  EXPECT_EQ(code_of<Type>(-0.0F), 0x80);
  EXPECT_EQ(code_of<Type>(smallest / 2), 0);  // a tie
  EXPECT_EQ(code_of<Type>(-smallest / 2), 0x80);
  EXPECT_EQ(code_of<Type>(std::nextafter(smallest / 2, 1.0F)), 1);
  EXPECT_EQ(code_of<Type>(smallest * 1.5F), 2);  // a tie
  EXPECT_EQ(code_of<Type>(std::numeric_limits<float>::denorm_min()), 0);
  EXPECT_EQ(code_of<Type>(-std::numeric_limits<float>::min()), 0x80);
}

TYPED_TEST(Float8Test, every_251st_fp32_value_is_rounded_exactly) {
  using Type = typename TypeParam::Type;
  const std::vector<double> values = finite_values<TypeParam>();
  int wrong = 0;
  for (uint64_t bits = 0; bits <= 0xffffffffU; bits += 251) {
    const auto value = std::bit_cast<float>(static_cast<uint32_t>(bits));
    const uint8_t expected = std::isnan(value)
                                 ? static_cast<uint8_t>(std::signbit(value) ? 0xff : 0x7f)
                                 : nearest_code(values, value);
    if (code_of<Type>(value) == expected) continue;
    if (++wrong < 5) ADD_FAILURE() << value << " became " << int{code_of<Type>(value)};
  }
  EXPECT_EQ(wrong, 0);
}

}  // namespace
}  // namespace trireme::base
