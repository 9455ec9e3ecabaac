// SPDX-License-Identifier: Apache-2.0
// Shared by all kernel files: element types, 16-byte vectors, reductions, launches.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cstdint>
#include <type_traits>

#include "base/check.h"
#include "base/dtype.h"
#include "device/cuda/cuda_device.h"
#include "device/tensor.h"

namespace trireme::kernels::cuda {

using bf16 = __nv_bfloat16;
using f16 = __half;

constexpr int warp_size = 32;

__device__ inline float load(const float* p) { return *p; }
__device__ inline float load(const bf16* p) { return __bfloat162float(*p); }
__device__ inline float load(const f16* p) { return __half2float(*p); }
__device__ inline void store(float* p, float value) { *p = value; }
__device__ inline void store(bf16* p, float value) { *p = __float2bfloat16_rn(value); }
__device__ inline void store(f16* p, float value) { *p = __float2half_rn(value); }

// Sixteen bytes of elements, the unit of memory-bound kernels. `p` must be aligned to 16 bytes.
template <typename T>
struct alignas(16) Vec {
  static constexpr int width = 16 / static_cast<int>(sizeof(T));
  T at[width];

  __device__ static Vec load(const T* p) { return *reinterpret_cast<const Vec*>(p); }
  __device__ void store(T* p) const { *reinterpret_cast<Vec*>(p) = *this; }
};

// All lanes get the result. The order of the additions is fixed.
__device__ inline float warp_sum(float value) {
#pragma unroll
  for (int offset = warp_size / 2; offset > 0; offset /= 2) {
    value += __shfl_xor_sync(0xffffffffU, value, offset);
  }
  return value;
}
__device__ inline float warp_max(float value) {
#pragma unroll
  for (int offset = warp_size / 2; offset > 0; offset /= 2) {
    value = fmaxf(value, __shfl_xor_sync(0xffffffffU, value, offset));
  }
  return value;
}

// ---- host side

inline int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

// Called after a launch: throws if the launch itself (not the run of the kernel) failed.
inline void check_launch(const char* kernel) { device::cuda_check(cudaGetLastError(), kernel); }

template <typename T>
const T* data(const device::ConstTensor& t) {
  return reinterpret_cast<const T*>(t.data);
}
template <typename T>
T* data(const device::Tensor& t) {
  return reinterpret_cast<T*>(t.data);
}

// Calls f(static_cast<T*>(nullptr)), where T is float or bf16, the types of gradients: the pointer
// carries the type only.
template <typename F>
void with_gradient_type(base::DType dtype, F&& f) {
  if (dtype == base::DType::bf16) {
    f(static_cast<bf16*>(nullptr));
  } else {
    TRIREME_CHECK(dtype == base::DType::f32, "{} is not f32 or bf16", base::name_of(dtype));
    f(static_cast<float*>(nullptr));
  }
}
// The same for activations and parameters: float, bf16 or f16.
template <typename F>
void with_real_type(base::DType dtype, F&& f) {
  if (dtype == base::DType::f16) {
    f(static_cast<f16*>(nullptr));
  } else {
    with_gradient_type(dtype, f);
  }
}
// Are f16 and bf16 among the types? No op has both, so no kernel is compiled for them.
template <typename... T>
constexpr bool mixes_16_bits = (std::is_same_v<T, f16> || ...) && (std::is_same_v<T, bf16> || ...);
inline void refuse_mixed_16_bits(const char* op) {
  TRIREME_CHECK(false, "{}: operands of f16 and bf16", op);
}

// Returns whether rows can be moved 16 bytes at a time.
template <typename Tensor>
bool is_vectorisable(const Tensor& t) {
  const int64_t size = base::size_of(t.dtype);
  return reinterpret_cast<uintptr_t>(t.data) % 16 == 0 && (t.row_stride * size) % 16 == 0 &&
         (t.cols() * size) % 16 == 0;
}

}  // namespace trireme::kernels::cuda
