// SPDX-License-Identifier: Apache-2.0
// The arithmetic of collect_amax and rotate_amax (kernels/quantize_args.h), for all tables. It
// compares bits: those of magnitudes have the order of the magnitudes.
#pragma once

#include <cstdint>

namespace trireme::kernels {

constexpr uint32_t infinity_bits = 0x7f800000U;

// Returns the larger one of two magnitudes; infinity if one is not finite.
constexpr uint32_t larger_magnitude(uint32_t a, uint32_t b) {
  const uint32_t larger = a > b ? a : b;
  return larger < infinity_bits ? larger : infinity_bits;
}

// Enters the magnitude `amax` into a history of `length`, newest first, unless it is 0 or not
// finite, and returns the largest one of the history.
constexpr uint32_t rotate_history(uint32_t amax, uint32_t* history, int64_t length) {
  if (amax != 0 && amax < infinity_bits) {
    for (int64_t i = length - 1; i > 0; --i) history[i] = history[i - 1];
    history[0] = amax;
  }
  uint32_t largest = 0;
  for (int64_t i = 0; i < length; ++i) largest = history[i] > largest ? history[i] : largest;
  return largest;
}

}  // namespace trireme::kernels
