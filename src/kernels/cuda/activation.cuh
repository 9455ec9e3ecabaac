// SPDX-License-Identifier: Apache-2.0
// The activations on the device, in one form for all types, so that every kernel that applies
// gelu() to a stored value computes the same bits. They are fused into matrix products
// (gemm_fused.cuh), where every instruction counts: each takes two of the special function unit.
#pragma once

#include <cuda_runtime.h>

namespace trireme::kernels::cuda {

// 1 / (1 + 2^t), and 1 minus that, both without cancellation. If 2^t would overflow both are 0, so
// that products of the two with finite values stay finite and correct. t is not NaN.
struct Sigmoid {
  float value;
  float complement;
};
__device__ inline float power_of_two(float t) {
  float e;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(e) : "f"(t));
  return e;
}
// NaN stays NaN.
__device__ inline float between(float low, float x, float high) {
  float r;
  asm("min.NaN.f32 %0, %1, %2;" : "=f"(r) : "f"(x), "f"(high));
  asm("max.NaN.f32 %0, %0, %1;" : "+f"(r) : "f"(low));
  return r;
}
__device__ inline float reciprocal(float x) {
  float r;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x));
  return r;
}
// The same for several values, whose instructions overlap.
template <int n>
__device__ inline void sigmoids_of_powers(float (&t)[n], Sigmoid (&s)[n]) {
#pragma unroll
  for (int j = 0; j < n; ++j) t[j] = power_of_two(fminf(t[j], 127.5F));
#pragma unroll
  for (int j = 0; j < n; ++j) s[j].value = reciprocal(1.0F + t[j]);
#pragma unroll
  for (int j = 0; j < n; ++j) s[j].complement = t[j] * s[j].value;
}
__device__ inline Sigmoid sigmoid_of_power(float t) {
  float one[1] = {t};
  Sigmoid s[1];
  sigmoids_of_powers(one, s);
  return s[0];
}

constexpr float log2_e = 0x1.715476p0F;

// With u = sqrt(2/pi) (x + 0.044715 x^3), (1 + tanh u)/2 = 1 / (1 + e^-2u), so gelu(x) is x times
// that: the tanh form, without its cancellation at negative x. NaN stays NaN.
constexpr float gelu_slope = 0x1.988454p0F;  // 2 sqrt(2/pi)
constexpr float gelu_cubic = 0.044715F;

// The power of two in gelu's sigmoid.
__device__ inline float gelu_power(float x) {
  constexpr float linear = -gelu_slope * log2_e, cubic = linear * gelu_cubic;
  return x * fmaf(cubic, x * x, linear);
}
__device__ inline float gelu(float x) { return x * sigmoid_of_power(gelu_power(x)).value; }

// 2u'
__device__ inline float gelu_power_slope(float x) {
  return fmaf(3.0F * gelu_slope * gelu_cubic, x * x, gelu_slope);
}
// With the sigmoid s of x: s + x s (1 - s) 2u'. If 2u' exceeds 1e4, |x| > 200, the product is 0 and
// 2u' must only stay finite.
__device__ inline float gelu_grad(float x, const Sigmoid& s) {
  const float slope = fminf(1e4F, gelu_power_slope(x));
  return fmaf(x * (s.value * s.complement), slope, s.value);
}
__device__ inline float gelu_grad(float x) { return gelu_grad(x, sigmoid_of_power(gelu_power(x))); }

// silu(x) = x s, s = 1 / (1 + e^-x), and its derivative s (1 + x (1 - s)).
struct Silu {
  float value;
  float derivative;
};
__device__ inline float silu_power(float x) { return x * -log2_e; }
__device__ inline Silu silu(float x, const Sigmoid& s) {
  return {x * s.value, s.value * fmaf(x, s.complement, 1.0F)};
}
__device__ inline Silu silu(float x) { return silu(x, sigmoid_of_power(silu_power(x))); }

}  // namespace trireme::kernels::cuda
