// SPDX-License-Identifier: Apache-2.0
// Scalar activations and their derivatives, in double.
#pragma once

#include <cmath>
#include <numbers>

namespace trireme::kernels::reference {

// x/2 (1 + tanh(u)), u = sqrt(2/pi) (x + 0.044715 x^3).
inline double gelu(double x) {
  const double u = std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x);
  return x / 2 * (1 + std::tanh(u));
}

// (1 + tanh(u))/2 + x/2 (1 - tanh(u)^2) u'.
inline double gelu_derivative(double x) {
  const double u = std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x);
  const double du = std::sqrt(2 / std::numbers::pi) * (1 + 3 * 0.044715 * x * x);
  const double th = std::tanh(u);
  return (1 + th) / 2 + x / 2 * (1 - th * th) * du;
}

inline double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

}  // namespace trireme::kernels::reference
