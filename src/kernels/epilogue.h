// SPDX-License-Identifier: Apache-2.0
// The epilogue of a matrix product: what happens to value = alpha op(a) op(b) + beta d before it is
// stored as d [m, n], and what is written besides. Exactly one alternative applies. Tensors are
// [m, n] unless a comment names another shape; bias is [n].
//
// Arithmetic is in fp32 or wider and d is rounded once, except where a comment allows an earlier
// rounding. The tensors that an epilogue writes overlap neither each other nor an operand.
#pragma once

#include <variant>

#include "device/tensor.h"

namespace trireme::kernels {

using device::ConstTensor;
using device::Tensor;

// d = value + bias + residual. Without either, d = value. REQUIRES: no residual if beta != 0.
struct AddTerms {
  ConstTensor bias = {};      // optional
  ConstTensor residual = {};  // optional; may be the same tensor as d
};

// u = value + bias, rounded to the type of d;  input = u;  d = gelu(u), with the bits of
// gelu_forward. REQUIRES, as all alternatives below but BiasGradient: beta = 0.
struct GeluForward {
  ConstTensor bias = {};  // optional
  Tensor input;           // type of d
};

// The same with slope = gelu'(u) instead of u, so that the backward pass is a ScaleBy.
struct GeluForwardSlope {
  ConstTensor bias = {};  // optional
  Tensor slope;           // type of d
};

// d = value * gelu'(input). If bf16, each factor may be rounded first.
struct GeluGradient {
  ConstTensor input;  // may be the same tensor as d
  Tensor d_sum = {};  // optional [n], gradient type: += sum over rows of d as stored
  Tensor gelu = {};   // optional, type of input: gelu(input), with the bits of gelu_forward
};

// d = value * factor. If d is bf16, value may be rounded first.
struct ScaleBy {
  ConstTensor factor;  // may be the same tensor as d
  Tensor d_sum = {};   // optional [n], gradient type: += sum over rows of d as stored
};

// d = value, and sum [m] (gradient type) += sum over k of op(a): the gradient of a bias beside the
// gradient of its weight.
struct BiasGradient {
  Tensor sum;
};

using Epilogue =
    std::variant<AddTerms, GeluForward, GeluForwardSlope, GeluGradient, ScaleBy, BiasGradient>;

}  // namespace trireme::kernels
