// SPDX-License-Identifier: Apache-2.0
// exp, sigmoid and GELU without branches or calls, so that loops over them become vector code.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>

namespace trireme::kernels::cpu {

// Returns the smaller value; NaN counts as large. Compares integers, which unlike min of floats is
// one vector instruction: positive floats are ordered like their bits, and negative ones are
// negative integers. REQUIRES: bound > 0.
inline float min_with(float bound, float x) {
  return std::bit_cast<float>(std::min(std::bit_cast<int32_t>(x), std::bit_cast<int32_t>(bound)));
}

// e^x within 2 ulp; 0 below -87.3 (where fp32 loses digits), 3.4e38 above 88.72, NaN stays NaN.
//   x = n ln 2 + r, |r| <= ln(2)/2, e^x = 2^n e^r, and e^r is its Taylor sum to r^7 (relative error
//   below 6e-9).
inline float exp_of(float x) {
  const float bounded = min_with(88.72F, x);
  // Adding 1.5 * 2^23 rounds to an integer, which is then in the low bits.
  constexpr float to_integer = 0x1.8p23F;
  const float shifted = bounded * 0x1.715476p0F + to_integer;
  const float n = shifted - to_integer;
  float r = bounded - n * 0x1.62e4p-1F;  // the first 15 bits of ln 2: the product is exact
  r = r - n * 0x1.7f7d1cp-20F;
  // Terms 2 to 7, as pairs that do not wait for each other.
  const float r2 = r * r;
  const float terms23 = 0x1.555556p-3F * r + 0.5F;
  const float terms45 = 0x1.111112p-7F * r + 0x1.555556p-5F;
  const float terms67 = 0x1.a01a02p-13F * r + 0x1.6c16c2p-10F;
  const float terms = (r2 * r2) * terms67 + (r2 * terms45 + terms23);
  const float sum = (r2 * terms + r) + 1.0F;
  // n is added to the exponent.
  const uint32_t scaled = std::bit_cast<uint32_t>(sum) + (std::bit_cast<uint32_t>(shifted) << 23);
  // Floats below -87.3 are those whose bits are a larger unsigned number.
  constexpr auto lowest = std::bit_cast<uint32_t>(-87.3F);
  const uint32_t result = std::bit_cast<uint32_t>(x) > lowest ? 0 : scaled;
  return x == x ? std::bit_cast<float>(result) : x;
}

// 1 / (1 + e^-x), and its complement from the same exponential, so that neither cancels. exp_of()
// is finite, and so is their product.
struct Sigmoid {
  float value;
  float complement;
};
inline Sigmoid sigmoid_of(float x) {
  const float e = exp_of(-x);
  const float value = 1.0F / (1.0F + e);
  return {value, e * value};
}

// With u = sqrt(2/pi) (x + 0.044715 x^3), (1 + tanh u)/2 = sigmoid(2u), so gelu(x) = x sigmoid(2u).
constexpr float gelu_slope = 0x1.9884533d43651p0F;  // 2 sqrt(2/pi)
constexpr float gelu_cubic = 0.044715F;

inline float gelu_of(float x) {
  return x * sigmoid_of(gelu_slope * (x + gelu_cubic * x * x * x)).value;
}

// sigmoid(2u) + x sigmoid'(2u) 2u'. If 2u' exceeds 1e4, |x| > 200, it has no effect and must only
// stay finite.
inline float gelu_derivative_of(float x) {
  const Sigmoid s = sigmoid_of(gelu_slope * (x + gelu_cubic * x * x * x));
  const float slope = min_with(1e4F, gelu_slope * (1.0F + 3.0F * gelu_cubic * x * x));
  return s.value + x * s.value * s.complement * slope;
}

}  // namespace trireme::kernels::cpu
