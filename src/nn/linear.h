// SPDX-License-Identifier: Apache-2.0
// y = x w^T + bias and its two gradients. The only place that asks the recipe how a GEMM operand is
// stored.
#pragma once

#include "kernels/args.h"
#include "nn/layer.h"

namespace trireme::nn {

struct LinearForward {
  ConstTensor x;         // [T, in]
  ConstTensor weight;    // [out, in]
  ConstTensor bias;      // optional [out]
  ConstTensor residual;  // optional [T, out], added to the result
  Tensor y;              // [T, out]
  Tensor gelu_input;     // optional [T, out]: gets the result, and y = gelu(result)
  Tensor gelu_slope;     // in its place: gets gelu'(result)
  Tensor swiglu;         // optional [T, out / 2]: gets swiglu(y)
};
void linear_forward(const Pass&, const LinearForward&);

struct LinearBackwardInput {
  ConstTensor dy;            // [T, out]
  ConstTensor weight;        // [out, in]
  Tensor dx;                 // [T, in]
  ConstTensor gelu_grad_of;  // optional [T, in]: dx is multiplied by gelu' of it
  ConstTensor factor;        // in its place: dx is multiplied by it
  Tensor dx_sum;             // with either, optional [in], added to: the sum of dx, a bias gradient
  Tensor gelu_again;         // with gelu_grad_of, optional [T, in]: gets gelu of it
  // Optional. Its dy is dx, which need not be written then.
  kernels::SwigluBackwardArgs swiglu;
};
void linear_backward_input(const Pass&, const LinearBackwardInput&);

struct LinearBackwardWeight {
  ConstTensor dy;       // [T, out]
  ConstTensor x;        // [T, in]
  Tensor weight_grad;   // [out, in], added to
  bool writes = false;  // weight_grad is written instead
  Tensor bias_grad;     // optional [out], added to
};
void linear_backward_weight(const Pass&, const LinearBackwardWeight&);

}  // namespace trireme::nn
