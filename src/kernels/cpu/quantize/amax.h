// SPDX-License-Identifier: Apache-2.0
// Largest magnitudes, as kernels/quantize_args.h states: maxima of bits without sign, so that any
// NaN wins. A maximum has no order, so tasks may raise the same value at once.
#pragma once

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstdint>

#include "kernels/cpu/segment.h"

namespace trireme::kernels::cpu {

// Returns the bits of the largest magnitude; 0 of no values.
inline uint32_t amax_bits(const float* x, int64_t count) {
  uint32_t largest = 0;
#pragma omp simd reduction(max : largest)
  for (int64_t i = 0; i < count; ++i) {
    largest = std::max(largest, std::bit_cast<uint32_t>(x[i]) & 0x7fffffffU);
  }
  return largest;
}

// value = max(value, bits), while other tasks may do the same.
inline void raise(uint32_t& value, uint32_t bits) {
  const std::atomic_ref<uint32_t> shared(value);
  uint32_t old = shared.load(std::memory_order_relaxed);
  while (old < bits && !shared.compare_exchange_weak(old, bits, std::memory_order_relaxed)) {
  }
}

// The elements of a flat tensor of largest magnitudes, as bits.
inline uint32_t magnitude_at(const ConstTensor& amax, int64_t index) {
  return std::bit_cast<uint32_t>(floats_at(amax, 0)[index]) & 0x7fffffffU;
}
inline uint32_t& bits_at(const Tensor& amax, int64_t index) {
  return reinterpret_cast<uint32_t*>(amax.data)[index];
}

// Raises amax ([1] f32; absent: does nothing) by the values of a segment, as they are stored.
inline void raise_by(const Tensor& amax, const ConstTensor& stored, const Segment& s) {
  if (!amax) return;
  SegmentBuffer buffer;
  uint32_t largest = 0;
  for (int64_t first = 0; first < s.count; first += max_segment) {
    const Segment part = {s.row, s.first + first, std::min(max_segment, s.count - first)};
    largest = std::max(largest, amax_bits(values_of(stored, part, buffer), part.count));
  }
  raise(bits_at(amax, 0), largest);
}

}  // namespace trireme::kernels::cpu
