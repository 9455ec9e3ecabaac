// SPDX-License-Identifier: Apache-2.0
// The linear maps of a decoder, and tensors that some models do not have.
#pragma once

#include <cstdint>

#include "device/device.h"
#include "device/memory.h"
#include "device/tensor.h"

namespace trireme::engine {

// Returns a tensor of the arena, or an empty one for an empty shape.
inline device::Tensor take(device::Arena& arena, const base::TensorSpec& spec) {
  return spec.shape.ndim() == 0 ? device::Tensor{} : arena.take(spec);
}

// Prompts with more rows than this use gemm, which reuses a weight for many rows.
constexpr int64_t max_product_rows = 8;

// y = x weight^T + bias + residual.
struct DecodeProduct {
  device::ConstTensor x, weight, bias = {}, residual = {};
  device::Tensor y;
};
// Unless they are those of a prompt, rows of y do not depend on other rows of x.
void multiply(device::Stream&, const DecodeProduct&, bool is_prompt);

}  // namespace trireme::engine
