// SPDX-License-Identifier: Apache-2.0
// Arithmetic of WideSum (step_state.h): adds block sums and converts the total to a double. Every
// back end of sum_squares and step_control uses these, so the norm of a gradient has the same bits
// on all of them.
#pragma once

#include <bit>
#include <cstdint>
#include <limits>

#include "kernels/step_state.h"

namespace trireme::kernels {

// The contribution of one block sum to a WideSum: `part[i]` is added to `limb[first + i]`, each
// below 2^32, and `not_finite`. Back ends that add atomically add these numbers; parts that are
// zero need not be added (their limb may not exist).
struct WideParts {
  int first = 0;
  int64_t part[3] = {0, 0, 0};
  int64_t not_finite = 0;
};

// REQUIRES: block_sum is not negative (NaN and infinity are counted). Bits below 2^-128 are cut
// off.
constexpr WideParts wide_parts(double block_sum) {
  WideParts parts;
  if (!(block_sum < 0x1p127)) {
    parts.not_finite = 1;
    return parts;
  }
  // block_sum = mantissa * 2^(exponent - 1075), for normal numbers with the hidden bit put back.
  const auto bits = std::bit_cast<uint64_t>(block_sum);
  const auto exponent = static_cast<int>(bits >> 52);
  if (exponent == 0) return parts;  // zero, or far below 2^-128
  uint64_t mantissa = (bits & ((uint64_t{1} << 52) - 1)) | (uint64_t{1} << 52);
  int position = exponent - 1075 - WideSum::lowest_exponent;  // of the mantissa's lowest bit
  if (position < 0) {
    if (position <= -53) return parts;
    mantissa >>= -position;
    position = 0;
  }
  constexpr uint64_t low_word = 0xffffffffU;
  const int shift = position % 32;
  const uint64_t low = (mantissa & low_word) << shift;
  const uint64_t high = ((mantissa >> 32) << shift) + (low >> 32);
  parts.first = position / 32;
  parts.part[0] = static_cast<int64_t>(low & low_word);
  parts.part[1] = static_cast<int64_t>(high & low_word);
  parts.part[2] = static_cast<int64_t>(high >> 32);
  return parts;
}

// Adds one block sum. A limb holds 2^31 of them before it must be normalised, that is 2^38
// elements of one rank; add_normalised() adds sums of
// several ranks.
constexpr void add_block_sum(WideSum& sum, double block_sum) {
  const WideParts parts = wide_parts(block_sum);
  for (int i = 0; i < 3; ++i) {
    if (parts.part[i] != 0) sum.limb[parts.first + i] += parts.part[i];
  }
  sum.not_finite += parts.not_finite;
}

// Carries until every limb but the last is in [0, 2^32): equal values then have equal limbs.
constexpr void normalise(WideSum& sum) {
  for (int i = 0; i + 1 < WideSum::limbs; ++i) {
    sum.limb[i + 1] += sum.limb[i] >> 32;
    sum.limb[i] &= 0xffffffff;
  }
}

// Adds `part`, a normalised sum of up to 2^31 block sums, to `sum`, which has only been added to by
// this function. Limbs in carry-save form are up to 2^63, so that two of them would overflow, while
// 2^31 normalised ones cannot. The highest limb keeps the carries; a total that it cannot hold, at
// least 2^158, counts as not finite.
constexpr void add_normalised(WideSum& sum, const WideSum& part) {
  constexpr int last = WideSum::limbs - 1;
  const bool is_held = part.limb[last] <= std::numeric_limits<int64_t>::max() / 2 - sum.limb[last];
  for (int i = 0; i < last; ++i) sum.limb[i] += part.limb[i];
  if (is_held) sum.limb[last] += part.limb[last];
  sum.not_finite += part.not_finite + (is_held ? 0 : 1);
}

// Adds the limbs of `part` without carrying. REQUIRES: both together are of at most 2^31 block
// sums.
constexpr void add_limbs(WideSum& sum, const WideSum& part) {
  for (int i = 0; i < WideSum::limbs; ++i) sum.limb[i] += part.limb[i];
  sum.not_finite += part.not_finite;
}

// The value, or infinity if any block sum was not finite. Depends on the value only, not on the
// position of carries.
constexpr double to_double(WideSum sum) {
  if (sum.not_finite != 0) return std::numeric_limits<double>::infinity();
  normalise(sum);
  double value = 0;
  double unit = 0x1p-128;
  for (int i = 0; i < WideSum::limbs; ++i) {
    value += static_cast<double>(sum.limb[i]) * unit;
    unit *= 0x1p32;
  }
  return value;
}

}  // namespace trireme::kernels
