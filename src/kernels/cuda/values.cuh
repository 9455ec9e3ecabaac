// SPDX-License-Identifier: Apache-2.0
// How the kernels that work by rows (norm, rope, activation, cross-entropy) read and write elements
// as floats. A fast kernel has the element type T at compile time and moves W = Vec<T>::width
// elements at a time; a general one moves single elements (W = 1) of a type known at run time.
#pragma once

#include <cstring>
#include <type_traits>

#include "kernels/cuda/launch.cuh"

namespace trireme::kernels::cuda {

// Sixteen bytes of memory, aligned to 16. A plain store of a struct is sometimes compiled to four
// single ones; the intrinsic is not.
__device__ inline uint4 load_bits(const void* p) { return *static_cast<const uint4*>(p); }
__device__ inline void store_bits(void* p, const uint4& bits) {
  __stwb(static_cast<uint4*>(p), bits);
}

// The Vec<T>::width elements in 16 bytes.
template <typename T>
__device__ inline void unpack(const uint4& bits, float (&values)[Vec<T>::width]) {
  const uint32_t words[4] = {bits.x, bits.y, bits.z, bits.w};
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    if constexpr (std::is_same_v<T, bf16>) {  // a bf16 has the high 16 bits of a float
      values[2 * j] = __uint_as_float(words[j] << 16);
      values[2 * j + 1] = __uint_as_float(words[j] & 0xffff0000U);
    } else if constexpr (std::is_same_v<T, f16>) {
      __half2 pair;
      memcpy(&pair, &words[j], sizeof pair);
      const float2 both = __half22float2(pair);
      values[2 * j] = both.x;
      values[2 * j + 1] = both.y;
    } else {
      values[j] = __uint_as_float(words[j]);
    }
  }
}

template <typename T>
__device__ inline uint4 pack(const float (&values)[Vec<T>::width]) {
  uint32_t words[4];
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    if constexpr (std::is_same_v<T, bf16>) {
      const __nv_bfloat162 pair = __floats2bfloat162_rn(values[2 * j], values[2 * j + 1]);
      memcpy(&words[j], &pair, sizeof pair);
    } else if constexpr (std::is_same_v<T, f16>) {
      const __half2 pair = __floats2half2_rn(values[2 * j], values[2 * j + 1]);
      memcpy(&words[j], &pair, sizeof pair);
    } else {
      words[j] = __float_as_uint(values[j]);
    }
  }
  return make_uint4(words[0], words[1], words[2], words[3]);
}

// REQUIRES: with W > 1, p is aligned to 16 bytes.
template <int W, typename T>
__device__ inline void load_values(const T* p, float (&values)[W]) {
  if constexpr (W == 1) {
    values[0] = load(p);
  } else {
    static_assert(W == Vec<T>::width);
    unpack<T>(load_bits(p), values);
  }
}
template <int W, typename T>
__device__ inline void store_values(T* p, const float (&values)[W]) {
  if constexpr (W == 1) {
    store(p, values[0]);
  } else {
    static_assert(W == Vec<T>::width);
    store_bits(p, pack<T>(values));
  }
}

// W floats, a multiple of four, to memory that is aligned to 16 bytes.
template <int W>
__device__ inline void store_floats(float* p, const float (&values)[W]) {
  static_assert(W % 4 == 0);
#pragma unroll
  for (int j = 0; j < W; j += 4) {
    store_values(p + j, {values[j], values[j + 1], values[j + 2], values[j + 3]});
  }
}

__device__ inline double warp_sum(double value) {
#pragma unroll
  for (int offset = warp_size / 2; offset > 0; offset /= 2) {
    value += __shfl_xor_sync(0xffffffffU, value, offset);
  }
  return value;
}

// Rows of f32, bf16 or f16 as an argument of a kernel. If absent, data is null.
template <typename Void>
struct BasicRows {
  Void* data = nullptr;
  int64_t stride = 0;  // elements between rows
  base::DType dtype = base::DType::f32;

  template <typename T>
  using Element = std::conditional_t<std::is_const_v<Void>, const T, T>;

  // REQUIRES: the elements are of type T.
  template <typename T>
  __device__ Element<T>* row(int64_t t) const {
    return static_cast<Element<T>*>(data) + t * stride;
  }
  __device__ float get(int64_t t, int64_t c) const {
    if (dtype == base::DType::bf16) return load(row<bf16>(t) + c);
    if (dtype == base::DType::f16) return load(row<f16>(t) + c);
    return load(row<float>(t) + c);
  }
  __device__ void set(int64_t t, int64_t c, float value) const {
    if (dtype == base::DType::bf16) return store(row<bf16>(t) + c, value);
    if (dtype == base::DType::f16) return store(row<f16>(t) + c, value);
    store(row<float>(t) + c, value);
  }
};
using InRows = BasicRows<const void>;
using OutRows = BasicRows<void>;

// ---- host side

template <typename Void, typename T>
BasicRows<Void> basic_rows(const T& t) {
  if (!t) return {};
  TRIREME_CHECK(base::is_real(t.dtype), "{} is not f32, bf16 or f16", base::name_of(t.dtype));
  return {t.data, t.row_stride, t.dtype};
}
inline InRows in_rows(const device::ConstTensor& t) { return basic_rows<const void>(t); }
inline OutRows out_rows(const device::Tensor& t) { return basic_rows<void>(t); }

// A vector (one dimension) as one row.
inline InRows in_vector(const device::ConstTensor& t) {
  TRIREME_CHECK(!t || t.is_contiguous(), "a vector with stride {}, not 1", t.row_stride);
  return in_rows(t);
}

// Returns whether a fast kernel over elements of `dtype` can use it. Absent tensors are accepted.
inline bool is_fast_matrix(const device::ConstTensor& t, base::DType dtype) {
  return !t || (t.dtype == dtype && is_vectorisable(t));
}
inline bool is_fast_vector(const device::ConstTensor& t, base::DType dtype) {
  return !t || (t.dtype == dtype && reinterpret_cast<uintptr_t>(t.data) % 16 == 0);
}

// The number of blocks in the first dimension of a grid.
inline unsigned grid_of(int64_t blocks) {
  TRIREME_CHECK(blocks > 0 && blocks <= INT32_MAX, "a grid of {} blocks", blocks);
  return static_cast<unsigned>(blocks);
}

}  // namespace trireme::kernels::cuda
