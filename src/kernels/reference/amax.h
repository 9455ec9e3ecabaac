// SPDX-License-Identifier: Apache-2.0
// Values of tensors with their bits, and largest magnitudes of them, as kernels/quantize_args.h
// states.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>

#include "base/check.h"
#include "base/dtype.h"
#include "base/float16.h"
#include "device/tensor.h"

namespace trireme::kernels::reference {

// Returns an element of an f32, bf16 or f16 tensor; a NaN keeps its bits.
inline float float_at(const device::ConstTensor& x, int64_t row, int64_t col) {
  const int64_t at = row * x.row_stride + col;
  if (x.dtype == base::DType::f32) return reinterpret_cast<const float*>(x.data)[at];
  if (x.dtype == base::DType::f16) {
    return static_cast<float>(reinterpret_cast<const base::F16*>(x.data)[at]);
  }
  TRIREME_CHECK(x.dtype == base::DType::bf16, "no magnitudes of {}", base::name_of(x.dtype));
  return static_cast<float>(reinterpret_cast<const base::Bf16*>(x.data)[at]);
}

inline uint32_t magnitude_bits(float value) { return std::bit_cast<uint32_t>(value) & 0x7fffffffU; }

// Returns the bits of the largest magnitude of all elements.
inline uint32_t amax_bits(const device::ConstTensor& x) {
  uint32_t largest = 0;
  for (int64_t r = 0; r < x.rows(); ++r) {
    for (int64_t c = 0; c < x.cols(); ++c) {
      largest = std::max(largest, magnitude_bits(float_at(x, r, c)));
    }
  }
  return largest;
}

// Raises amax ([1] f32; absent: does nothing) by what was stored in x.
inline void raise_by(const device::Tensor& amax, const device::ConstTensor& x) {
  if (!amax) return;
  uint32_t& bits = *reinterpret_cast<uint32_t*>(amax.data);
  bits = std::max(bits, amax_bits(x));
}

}  // namespace trireme::kernels::reference
