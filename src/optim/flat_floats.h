// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "device/tensor.h"

namespace trireme::optim {

// A flat view of floats in device memory: f32, bf16 or f16 in `values`, or split fp32 with the high
// part in `values` (bf16) and the low part in `low` (u16; base/split_float.h).
struct FlatFloats {
  device::Tensor values;
  device::Tensor low = {};

  FlatFloats slice(int64_t first, int64_t count) const {
    return {values.slice_rows(first, count), low ? low.slice_rows(first, count) : device::Tensor{}};
  }
};

}  // namespace trireme::optim
