// SPDX-License-Identifier: Apache-2.0
// The activations on the device. One form for all types: a kernel that applies gelu() to a stored
// value gives the bits that any other kernel gives for it.
#pragma once

#include <cuda_runtime.h>

namespace trireme::kernels::cuda {

// 1 / (1 + e^-x) and 1 minus that, neither by cancellation. The exponential is of -|x|, so that it
// cannot overflow: for large |x| one of the two is 0 and products with finite values stay finite.
// NaN stays NaN.
struct Sigmoid {
  float value;
  float complement;
};
__device__ inline Sigmoid sigmoid(float x) {
  const float e = expf(-fabsf(x));
  const float large = __fdividef(1.0F, 1.0F + e);  // a divisor in [1, 2]: within 2 ulp
  const float small = e * large;
  return x < 0 ? Sigmoid{small, large} : Sigmoid{large, small};
}

// With u = sqrt(2/pi) (x + 0.044715 x^3), (1 + tanh u)/2 = sigmoid(2u), so gelu(x) = x sigmoid(2u):
// the tanh form, without its cancellation at negative x.
constexpr float gelu_slope = 0x1.988454p0F;  // 2 sqrt(2/pi)
constexpr float gelu_cubic = 0.044715F;

__device__ inline float gelu(float x) {
  return x * sigmoid(gelu_slope * (x + gelu_cubic * x * x * x)).value;
}

// sigmoid(2u) + x sigmoid'(2u) 2u'. Where 2u' passes 1e4, |x| > 200, the product is 0 and 2u' must
// only stay finite.
__device__ inline float gelu_grad(float x) {
  const Sigmoid s = sigmoid(gelu_slope * (x + gelu_cubic * x * x * x));
  const float slope = fminf(1e4F, gelu_slope * (1.0F + 3.0F * gelu_cubic * x * x));
  return s.value + x * (s.value * s.complement) * slope;
}

// silu(x) = x sigmoid(x) and its derivative s (1 + x (1 - s)).
struct Silu {
  float value;
  float derivative;
};
__device__ inline Silu silu(float x) {
  const Sigmoid s = sigmoid(x);
  return {x * s.value, s.value * (1.0F + x * s.complement)};
}

}  // namespace trireme::kernels::cuda
