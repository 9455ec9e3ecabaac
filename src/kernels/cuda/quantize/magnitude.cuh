// SPDX-License-Identifier: Apache-2.0
// The largest magnitude of stored values, as unsigned integers of their bits without sign
// (kernels/quantize_args.h): found by kernels that write the values, raised in memory once a block.
#pragma once

#include <cuda_fp16.h>

#include <type_traits>

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/values.cuh"

namespace trireme::kernels::cuda {

__device__ inline uint32_t magnitude_bits(float value) {
  return __float_as_uint(value) & 0x7fffffffU;
}

// A stored value as fp32. Unlike the instruction, the conversion of fp16 keeps the bits of a NaN.
__device__ inline float stored_value(float value) { return value; }
__device__ inline float stored_value(bf16 value) { return __bfloat162float(value); }
__device__ inline float stored_value(f16 value) {
  const uint32_t bits = __half_as_ushort(value);
  if ((bits & 0x7c00U) != 0x7c00U) return __half2float(value);
  return __uint_as_float((bits & 0x8000U) << 16 | 0x7f800000U | (bits & 0x3ffU) << 13);
}

// The larger of two pairs of 16-bit numbers, each.
__device__ inline uint32_t max_of_pairs(uint32_t a, uint32_t b) {
  uint32_t larger;
  asm("max.u16x2 %0, %1, %2;" : "=r"(larger) : "r"(a), "r"(b));
  return larger;
}
// The bits as fp32 of a magnitude that is stored as 16 bits.
template <typename T>
__device__ inline uint32_t bits_of_16(uint32_t stored) {
  if constexpr (std::is_same_v<T, bf16>) return stored << 16;
  return magnitude_bits(stored_value(__ushort_as_half(static_cast<uint16_t>(stored))));
}

// The largest of many values of type T. 16-bit types are compared in pairs, as they are stored.
template <typename T>
class Largest {
 public:
  // A word holds one f32 or two 16-bit values.
  __device__ void add_word(uint32_t word) {
    if constexpr (sizeof(T) == 4) {
      bits_ = max(bits_, word & 0x7fffffffU);
    } else {
      bits_ = max_of_pairs(bits_, word & 0x7fff7fffU);
    }
  }
  __device__ void add(const uint4& words) {
    add_word(words.x);
    add_word(words.y);
    add_word(words.z);
    add_word(words.w);
  }
  __device__ void add(T value) {
    if constexpr (sizeof(T) == 4) {
      add_word(__float_as_uint(value));
    } else {
      add_word(*reinterpret_cast<const uint16_t*>(&value));
    }
  }
  // Returns the bits of the value as fp32.
  __device__ uint32_t bits() const {
    if constexpr (sizeof(T) == 4) return bits_;
    return bits_of_16<T>(max(bits_ & 0xffffU, bits_ >> 16));
  }

 private:
  uint32_t bits_ = 0;
};

// store_values() that also adds what is stored.
template <int W, typename T>
__device__ inline void store_values(T* p, const float (&values)[W], Largest<T>& largest) {
  if constexpr (W == 1) {
    store(p, values[0]);
    largest.add(*p);
  } else {
    static_assert(W == Vec<T>::width);
    const uint4 words = pack<T>(values);
    store_bits(p, words);
    largest.add(words);
  }
}

// *bits = max(*bits, value). The first read may be old: values only grow.
__device__ inline void raise_bits(uint32_t* bits, uint32_t value) {
  if (*bits < value) atomicMax(bits, value);
}

// Raises *bits by the largest value of the block's threads, which are whole warps and all call it.
// `shared` has a word for each warp, which nothing else uses.
__device__ inline void raise_by_block(uint32_t* bits, uint32_t value, uint32_t* shared) {
  value = __reduce_max_sync(0xffffffffU, value);
  if (threadIdx.x % warp_size == 0) shared[threadIdx.x / warp_size] = value;
  __syncthreads();
  if (threadIdx.x >= warp_size) return;
  const bool is_warp = threadIdx.x < blockDim.x / warp_size;
  value = __reduce_max_sync(0xffffffffU, is_warp ? shared[threadIdx.x] : 0U);
  if (threadIdx.x == 0) raise_bits(bits, value);
}

// ---- host side

// Null if absent.
inline uint32_t* amax_bits(const device::Tensor& amax) {
  return amax ? data<uint32_t>(amax) : nullptr;
}

}  // namespace trireme::kernels::cuda
