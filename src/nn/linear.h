// SPDX-License-Identifier: Apache-2.0
// y = x w^T + bias and its two gradients. No other file reads the GEMM formats of the recipe.
#pragma once

#include "kernels/args.h"
#include "nn/layer.h"

namespace trireme::nn {

// Operands may be 8-bit codes, which come with their scales.
struct LinearForward {
  ConstTensor x;       // [T, in]
  ConstTensor weight;  // [out, in]
  ConstTensor x_scale = {}, weight_scale = {};
  kernels::Epilogue epilogue;  // bias, residual or GELU of the product
  Tensor y;                    // [T, out]
  Tensor swiglu;               // optional [T, out / 2]: receives swiglu(y)
};
void linear_forward(const Pass&, const LinearForward&);

struct LinearBackwardInput {
  ConstTensor dy;      // [T, out]
  ConstTensor weight;  // [out, in]; codes: [in, out]
  ConstTensor dy_scale = {}, weight_scale = {};
  Tensor dx;                   // [T, in]
  kernels::Epilogue epilogue;  // GeluGradient, ScaleBy or nothing
  // Optional: the SwiGLU backward that follows. Its dy is dx, which then need not be written.
  kernels::SwigluBackwardArgs swiglu;
};
void linear_backward_input(const Pass&, const LinearBackwardInput&);

struct LinearBackwardWeight {
  ConstTensor dy;  // [T, out]; codes: [out, T]
  ConstTensor x;   // [T, in]; codes: [in, T]
  ConstTensor dy_scale = {}, x_scale = {};
  Tensor weight_grad;   // [out, in], +=
  bool writes = false;  // weight_grad is overwritten instead
  Tensor bias_grad;     // optional [out], +=
};
void linear_backward_weight(const Pass&, const LinearBackwardWeight&);

}  // namespace trireme::nn
