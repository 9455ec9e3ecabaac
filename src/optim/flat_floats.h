// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "device/tensor.h"

namespace trireme::optim {

// Flat numbers as the device has them: f32 or bf16 in `values`; or fp32 numbers of which that is
// the upper half and `low` (u16) the lower one (base/split_float.h).
struct FlatFloats {
  device::Tensor values;
  device::Tensor low = {};

  FlatFloats slice(int64_t first, int64_t count) const {
    return {values.slice_rows(first, count), low ? low.slice_rows(first, count) : device::Tensor{}};
  }
};

}  // namespace trireme::optim
