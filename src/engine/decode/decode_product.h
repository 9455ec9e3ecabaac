// SPDX-License-Identifier: Apache-2.0
// The linear maps of a decoder.
#pragma once

#include <cstdint>

#include "device/device.h"
#include "device/tensor.h"

namespace trireme::engine {

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
