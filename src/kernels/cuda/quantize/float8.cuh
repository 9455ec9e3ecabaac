// SPDX-License-Identifier: Apache-2.0
// 8-bit floats and their scales on the device, with the bits of kernels/quantize_args.h; and what
// quantising does to values, counted. Divisions are IEEE's, whatever the options of the compiler.
#pragma once

#include <cuda_fp8.h>

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/quantize/magnitude.cuh"
#include "kernels/quantize_args.h"

namespace trireme::kernels::cuda {

struct E4m3Format {
  static constexpr float largest = 448;
  static constexpr float step = 32;  // between the largest values
  static constexpr __nv_fp8_interpretation_t interpretation = __NV_E4M3;

  // Two codes, that of `low` in the low byte. NaN becomes 0x7f.
  __device__ static uint32_t pair(float low, float high) {
    uint16_t codes;
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(codes) : "f"(high), "f"(low));
    return codes;
  }
};

struct E5m2Format {
  static constexpr float largest = 57344;
  static constexpr float step = 8192;
  static constexpr __nv_fp8_interpretation_t interpretation = __NV_E5M2;

  __device__ static uint32_t pair(float low, float high) {
    uint16_t codes;
    asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(codes) : "f"(high), "f"(low));
    return codes;
  }
};

// The codes of four values, the first in the lowest byte.
template <typename Format>
__device__ inline uint32_t four_codes(float a, float b, float c, float d) {
  return Format::pair(a, b) | Format::pair(c, d) << 16;
}
template <typename Format>
__device__ inline uint8_t one_code(float value) {
  return static_cast<uint8_t>(Format::pair(value, 0.0F));
}

__device__ inline float value_of_code(uint8_t code, __nv_fp8_interpretation_t format) {
  return __half2float(__half(__nv_cvt_fp8_to_halfraw(code, format)));
}

// ---- scales

// The factor of values that share a largest magnitude; infinity and NaN included.
template <typename Format>
__device__ inline float up_of(uint32_t amax_bits) {
  if (amax_bits == 0 || amax_bits >= 0x7f800000U) return 1;
  const float up = __fdiv_rn(Format::largest, __uint_as_float(amax_bits));
  return fminf(up, 0x1.fffffep127F);
}
// The same of ScaleShape::row_128: a power of two.
template <typename Format>
__device__ inline float row_up_of(uint32_t amax_bits) {
  return __uint_as_float(__float_as_uint(up_of<Format>(amax_bits)) & 0x7f800000U);
}
// The factor of their codes.
__device__ inline float scale_of(float up) { return __frcp_rn(up); }

// ---- counts

// Counts the values of one thread; add_to() adds those of a warp to the op's.
template <typename Format>
struct ThreadCounts {
  int values = 0, flushed = 0, saturated = 0;
  double signal = 0, noise = 0;

  // Adds those of eight values, with their codes and factors, whose bits are in `mask`. A call,
  // since the code is long and rarely used; of eight, since the counts lie in memory during a call.
  __device__ __noinline__ void add_eight(float4 low, float4 high, uint2 codes, float4 low_ups,
                                         float4 high_ups, uint32_t mask) {
    const float values[8] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
    const float ups[8] = {low_ups.x,  low_ups.y,  low_ups.z,  low_ups.w,
                          high_ups.x, high_ups.y, high_ups.z, high_ups.w};
    ThreadCounts sum = *this;
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      const uint32_t word = j < 4 ? codes.x : codes.y;
      if ((mask >> j & 1U) != 0) {
        sum.add(values[j], static_cast<uint8_t>(word >> (8 * (j % 4))), ups[j]);
      }
    }
    *this = sum;
  }
  __device__ __forceinline__ void add(float value, uint8_t code, float up) {
    const float coded = value_of_code(code, Format::interpretation);
    ++values;
    flushed += value != 0 && coded == 0 ? 1 : 0;
    const bool is_finite = magnitude_bits(value) < 0x7f800000U;
    saturated +=
        is_finite && fabsf(__fmul_rn(value, up)) > Format::largest + Format::step / 2 ? 1 : 0;
    const auto exact = static_cast<double>(value);
    const double error = exact - static_cast<double>(__fmul_rn(coded, scale_of(up)));
    signal += exact * exact;
    noise += error * error;
  }

  // All lanes of a warp call it.
  __device__ void add_to(QuantizeCounts* counts) {
    constexpr unsigned all = 0xffffffffU;
    values = __reduce_add_sync(all, values);
    flushed = __reduce_add_sync(all, flushed);
    saturated = __reduce_add_sync(all, saturated);
#pragma unroll
    for (int offset = warp_size / 2; offset > 0; offset /= 2) {
      signal += __shfl_xor_sync(all, signal, offset);
      noise += __shfl_xor_sync(all, noise, offset);
    }
    if (threadIdx.x % warp_size != 0) return;
    const auto add_integer = [](int64_t& to, int count) {
      atomicAdd(reinterpret_cast<unsigned long long*>(&to), static_cast<unsigned long long>(count));
    };
    add_integer(counts->values, values);
    add_integer(counts->flushed, flushed);
    add_integer(counts->saturated, saturated);
    atomicAdd(&counts->signal, signal);
    atomicAdd(&counts->noise, noise);
  }
};

// ---- host side

// Calls f(E4m3Format()) or f(E5m2Format()).
template <typename F>
void with_format(base::DType codes, F&& f) {
  if (codes == base::DType::f8e4m3) {
    f(E4m3Format());
  } else {
    TRIREME_CHECK(codes == base::DType::f8e5m2, "{} is not an 8-bit float", base::name_of(codes));
    f(E5m2Format());
  }
}

inline QuantizeCounts* counts_of(const device::Tensor& t) { return data<QuantizeCounts>(t); }

// The rows of a matrix that are used: those below *end, if there is one.
struct UsedRows {
  int64_t rows;
  const int32_t* end;

  __device__ int64_t count() const {
    if (end == nullptr) return rows;
    const int64_t used = *end;
    return used < rows ? used : rows;
  }
};
inline UsedRows used_rows(const device::ConstTensor& x, const device::ConstTensor& end) {
  return {x.rows(), end ? data<int32_t>(end) : nullptr};
}

}  // namespace trireme::kernels::cuda
