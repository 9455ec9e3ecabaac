// SPDX-License-Identifier: Apache-2.0
// The kernels used beside the library's matrix products, as host functions that queue them.
#pragma once

#include <cstdint>

#include "device/cuda/cuda_device.h"
#include "kernels/args.h"

namespace trireme::kernels::cuda {

// Any product that GemmArgs can describe, on CUDA cores: for operands that the library does not
// support.
// Computes d and none of the other results of the epilogue, with one exception: for
// GeluForward and GeluForwardSlope it stores value + bias in `input` or `slope`, and d is left to
// gelu_forward or gelu_with_slope. REQUIRES: d has elements.
void general_gemm(device::CudaStream& stream, const GemmArgs& args);

// sum[i] += sum over k of op(a)[i, k], in an order that depends on the shape of a only. With
// `trans` it needs some of the stream's workspace.
void add_row_sums(device::CudaStream& stream, const ConstTensor& a, bool trans, const Tensor& sum);

// The same for a of a product of 8-bit operands: sum[i] += sum over k of a's codes times scales.
void add_row_sums_of_codes(device::CudaStream& stream, const GemmArgs& args, const Tensor& sum);

// d = value * x, or value * gelu'(x) rounded to x's type. All [m, n]; value and x may each be the
// same tensor as d.
struct FactorArgs {
  ConstTensor value;
  ConstTensor x;
  Tensor d;
};
void multiply_by(device::CudaStream& stream, const FactorArgs& args);
void multiply_by_gelu_grad(device::CudaStream& stream, const FactorArgs& args);
// y = gelu(x) with the bits of gelu_forward, then x = gelu'(x). Same shape and type.
void gelu_with_slope(device::CudaStream& stream, const Tensor& x, const Tensor& y);

// ---- for the choice of algorithms

// A fingerprint of memory that does not depend on the order of summation.
struct Digest {
  uint64_t sum = 0;      // of a hash of every 32-bit word and its place
  uint64_t nonzero = 0;  // words
};
// *digest += the digest of `words` 32-bit words. Both in device memory.
void add_digest(device::CudaStream& stream, const std::byte* data, int64_t words, Digest* digest);

// *count += elements where `product` (bf16) differs from value * gelu'(x) by more than the
// roundings of both and an approximate tanh allow: 2^-6 of it and 2^-8 of value (but not less
// than 1e-30, where bf16 loses digits).
struct GeluGradCheckArgs {
  ConstTensor product, value, x;  // [m, n] bf16
  uint64_t* count;                // in device memory
};
void count_gelu_grad_errors(device::CudaStream& stream, const GeluGradCheckArgs& args);

}  // namespace trireme::kernels::cuda
