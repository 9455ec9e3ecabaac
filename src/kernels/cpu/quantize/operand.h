// SPDX-License-Identifier: Apache-2.0
// Operands of products as fp32: tensors of values, or 8-bit codes times their scales
// (kernels/quantize_args.h).
#pragma once

#include <cstdint>

#include "kernels/cpu/quantize/codes.h"
#include "kernels/cpu/segment.h"
#include "kernels/quantize_args.h"

namespace trireme::kernels::cpu {

struct Operand {
  ConstTensor x;
  ConstTensor scale = {};  // present if x is in 8 bits
  ScaleShape shape = ScaleShape::tensor;
};

// Returns the scale of the element (row, col). Elements with one value of col / scale_block share
// it.
inline float scale_at(const Operand& operand, int64_t row, int64_t col) {
  const int64_t block = col / spec::scale_block;
  switch (operand.shape) {
    case ScaleShape::tensor:
      return floats_at(operand.scale, 0)[0];
    case ScaleShape::row_128:
      return floats_at(operand.scale, block)[row];
    case ScaleShape::block_128:
      return floats_at(operand.scale, row / spec::scale_block)[block];
  }
  return 1;
}

// As values_of() of a tensor.
inline const float* values_of(const Operand& operand, const Segment& s, float* buffer) {
  if (!base::is_float8(operand.x.dtype)) return values_of(operand.x, s, buffer);
  const uint8_t* codes = bytes_at(operand.x, s.row);
  for (int64_t col = s.first, end = s.first + s.count; col < end;) {
    const int64_t next = operand.shape == ScaleShape::tensor
                             ? end
                             : std::min(end, (col / spec::scale_block + 1) * spec::scale_block);
    const float scale = scale_at(operand, s.row, col);
    with_format(operand.x.dtype, [&]<typename Float8>(Float8) {
      decode<Float8>(codes + col, next - col, scale, buffer + (col - s.first));
    });
    col = next;
  }
  return buffer;
}

}  // namespace trireme::kernels::cpu
