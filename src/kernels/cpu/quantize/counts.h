// SPDX-License-Identifier: Apache-2.0
// What quantising did to values. Each task counts its own; these counts are then added in the order
// of tasks, so that they do not depend on threads.
#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

#include "kernels/cpu/quantize/amax.h"
#include "kernels/cpu/quantize/codes.h"
#include "kernels/quantize_args.h"

namespace trireme::kernels::cpu {

inline QuantizeCounts& counts_of(const Tensor& t) {
  return *reinterpret_cast<QuantizeCounts*>(t.data);
}

// Values, their codes and the scales of both, element by element.
struct Coded {
  const float* values;
  const uint8_t* codes;
  const float *up, *scale;
  int64_t count;
};

// Adds `coded` to all counts but amax.
template <typename Float8>
void measure(const Coded& coded, QuantizeCounts& counts) {
  // Half a step above the largest value still rounds to it.
  constexpr float steps = Float8::largest() == base::E4m3::largest() ? 14.0F : 7.0F;
  constexpr float limit = Float8::largest() + Float8::largest() / steps / 2;
  int64_t flushed = 0, saturated = 0;
  double signal = 0, noise = 0;
#pragma omp simd reduction(+ : flushed, saturated, signal, noise)
  for (int64_t i = 0; i < coded.count; ++i) {
    Float8 code;
    code.bits = coded.codes[i];
    const float value = coded.values[i];
    flushed += value != 0 && (code.bits & 0x7fU) == 0 ? 1 : 0;
    const bool is_finite = (std::bit_cast<uint32_t>(value) & 0x7fffffffU) < 0x7f800000U;
    saturated += is_finite && std::abs(value * coded.up[i]) > limit ? 1 : 0;
    const float decoded = static_cast<float>(code) * coded.scale[i];
    const double error = static_cast<double>(value) - static_cast<double>(decoded);
    signal += static_cast<double>(value) * static_cast<double>(value);
    noise += error * error;
  }
  counts.values += coded.count;
  counts.flushed += flushed;
  counts.saturated += saturated;
  counts.signal += signal;
  counts.noise += noise;
}

// Adds all counts but amax, in their order.
inline void add_counts(const std::vector<QuantizeCounts>& parts, QuantizeCounts& total) {
  for (const QuantizeCounts& part : parts) {
    total.values += part.values;
    total.flushed += part.flushed;
    total.saturated += part.saturated;
    total.signal += part.signal;
    total.noise += part.noise;
  }
}

}  // namespace trireme::kernels::cpu
