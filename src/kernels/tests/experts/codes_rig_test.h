// SPDX-License-Identifier: Apache-2.0
// Operands in 8 bits for tests of experts: rows and matrices of random values that the reference
// has quantised, both ways.
#pragma once

#include <cstring>

#include "kernels/ops.h"
#include "kernels/tests/experts/groups_rig_test.h"

namespace trireme::kernels {

// How an operand of a product is quantised.
struct Coded {
  DType format = DType::f8e4m3;
  ScaleShape shape = ScaleShape::tensor;
};

struct Codes {
  Tensor codes, scale;
};
struct CodesOfRows {
  Codes rows, columns;  // [R, C] and [C, R]
};

inline Tensor scales_for(Operands& o, ScaleShape shape, int64_t rows, int64_t cols) {
  return o.scratch(spec::scale_spec(shape, rows, cols).shape, DType::f32);
}

// Rows [R, C] of the groups: zero between groups. What follows the last group is not quantised:
// its codes stay NaN.
inline CodesOfRows coded_rows(Operands& o, const Groups& groups, int64_t cols, const Coded& coded,
                              uint64_t seed) {
  const int64_t rows = groups.rows();
  const Tensor x = rows_input(o, groups, {rows, cols}, {.dtype = DType::bf16}, seed);
  const CodesOfRows c = {
      {o.scratch({rows, cols}, coded.format), scales_for(o, coded.shape, rows, cols)},
      {o.scratch({cols, rows}, coded.format), scales_for(o, coded.shape, cols, rows)}};
  const Tensor end = o.integers({static_cast<int32_t>(groups.end())});
  const bool is_tensor = coded.shape == ScaleShape::tensor;
  const Tensor amax = is_tensor ? o.scratch({1}, DType::f32) : Tensor{};
  o.prepare([&](Stream& stream) {
    if (is_tensor) {
      std::memset(amax.data, 0, sizeof(float));
      ops::amax(stream, {.x = x, .amax = amax, .end = end});
    }
    ops::quantize(stream, {.x = x,
                           .rows = c.rows.codes,
                           .columns = c.columns.codes,
                           .rows_scale = c.rows.scale,
                           .columns_scale = c.columns.scale,
                           .shape = coded.shape,
                           .amax = amax,
                           .end = end});
  });
  return c;
}

// `count` matrices [rows, cols], with one scale each or one for 128 x 128 elements.
inline Codes coded_weights(Operands& o, int64_t count, int64_t rows, int64_t cols,
                           ScaleShape shape) {
  const int64_t n = count * rows * cols;
  const int64_t scales = count * spec::scale_spec(shape, rows, cols).shape.elements();
  const Tensor weights = o.input({n}, {.size = 0.1F});
  const Tensor amax = o.scratch({scales}, DType::f32);
  const Codes c = {o.scratch({count, rows, cols}, DType::f8e4m3), o.scratch({scales}, DType::f32)};
  o.prepare([&](Stream& stream) {
    std::memset(amax.data, 0, static_cast<size_t>(amax.bytes()));
    ops::weight_amax(stream, {.weights = weights,
                              .count = count,
                              .rows = rows,
                              .cols = cols,
                              .shape = shape,
                              .amax = amax});
    ops::weight_quantize(stream, {.weights = weights,
                                  .count = count,
                                  .rows = rows,
                                  .cols = cols,
                                  .shape = shape,
                                  .amax = amax,
                                  .codes = c.codes.reshape({n}),
                                  .scale = c.scale});
  });
  return c;
}

}  // namespace trireme::kernels
