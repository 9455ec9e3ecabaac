// SPDX-License-Identifier: Apache-2.0
// 8-bit codes and scales, as kernels/quantize_args.h states: value = code * scale. Loops have no
// branches, so that they become vector code.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <limits>

#include "base/check.h"
#include "base/dtype.h"
#include "base/float8.h"
#include "device/tensor.h"

namespace trireme::kernels::cpu {

inline const uint8_t* bytes_at(const device::ConstTensor& x, int64_t row) {
  return reinterpret_cast<const uint8_t*>(x.data) + row * x.row_stride;
}
inline uint8_t* bytes_at(const device::Tensor& x, int64_t row) {
  return reinterpret_cast<uint8_t*>(x.data) + row * x.row_stride;
}

// Calls body(E4m3()) or body(E5m2()).
template <typename Body>
void with_format(base::DType format, const Body& body) {
  TRIREME_CHECK(base::is_float8(format), "{} is not an 8-bit float", base::name_of(format));
  if (format == base::DType::f8e4m3) {
    body(base::E4m3());
  } else {
    body(base::E5m2());
  }
}

// Values are multiplied by `up`, codes by `scale`.
struct Scale {
  float up = 1, scale = 1;
};

// Returns the scale of values whose largest magnitude has these bits.
template <typename Float8>
Scale scale_of(uint32_t amax_bits) {
  const auto amax = std::bit_cast<float>(amax_bits);
  Scale s;
  if (amax_bits != 0 && amax_bits < 0x7f800000U) {
    s.up = std::min(Float8::largest() / amax, std::numeric_limits<float>::max());
  }
  s.scale = 1.0F / s.up;
  return s;
}

// The same of ScaleShape::row_128: a power of two.
template <typename Float8>
Scale scale_of_row(uint32_t amax_bits) {
  const auto bits = std::bit_cast<uint32_t>(scale_of<Float8>(amax_bits).up);
  const auto up = std::bit_cast<float>(bits & 0x7f800000U);
  return {up, 1.0F / up};
}

// codes[i] = the code of values[i], with the factor up[i].
template <typename Float8>
void encode(const float* values, const float* up, int64_t count, uint8_t* codes) {
#pragma omp simd
  for (int64_t i = 0; i < count; ++i) {
    const uint8_t bits = Float8(values[i] * up[i]).bits;
    codes[i] = values[i] != values[i] ? uint8_t{0x7f} : bits;
  }
}

// values[i] = the value of codes[i], times scale.
template <typename Float8>
void decode(const uint8_t* codes, int64_t count, float scale, float* values) {
#pragma omp simd
  for (int64_t i = 0; i < count; ++i) {
    Float8 code;
    code.bits = codes[i];
    values[i] = static_cast<float>(code) * scale;
  }
}

}  // namespace trireme::kernels::cpu
