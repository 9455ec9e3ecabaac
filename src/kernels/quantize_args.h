// SPDX-License-Identifier: Apache-2.0
// The arguments of ops that convert to 8-bit floats (base/float8.h). A matrix in 8 bits is a pair:
// codes and scales; value = code * scale. Scales are those of spec::ScaleShape, in the tensor that
// spec::scale_spec() describes.
//
// With a = the largest magnitude of the values that share a scale and M the format's largest value:
//   up = M / a, the fp32 quotient rounded to nearest; 1 if a is 0 or not finite; the largest finite
//   fp32 if the quotient is infinite. With row_128 it is rounded down to a power of two: a value
//   that is not flushed then has the same mantissa by rows and by columns, and the gradient of a
//   weight is that of the values that the forward multiplied;
//   code = format(value * up), the fp32 product rounded to nearest, then saturated and rounded;
//   a NaN has the code 0x7f, whatever its sign;
//   scale = 1 / up, the fp32 quotient rounded to nearest.
// All tables compute these bits. They depend on the values only, not on threads or order.
//
// Largest magnitudes are f32 tensors that ops raise: a = max(a, |x|), as unsigned integers of their
// bits without sign, so that any NaN wins and the order does not matter. The caller sets them to 0.
#pragma once

#include <cstdint>

#include "device/tensor.h"
#include "spec/recipe.h"

namespace trireme::kernels {

using device::ConstTensor;
using device::Tensor;
using spec::ScaleShape;

// What quantising a tensor did to its values; one for each spec::Quantized of a layer. Ops add to
// it, all micro-batches of a step together.
struct QuantizeCounts {
  uint32_t amax_bits;  // of the largest magnitude of the values: raised as above
  uint32_t unused;
  int64_t values;     // of measured calls, as all below
  int64_t flushed;    // not zero, but their code is
  int64_t saturated;  // finite, and above M after scaling (by more than the rounding to M)
  double signal;      // sum of value^2, in no specified order
  double noise;       // sum of (value - code * scale)^2
};
static_assert(sizeof(QuantizeCounts) == 48);

// amax = max(amax, largest magnitude of x).
struct AmaxArgs {
  ConstTensor x;         // [R, C], f32, bf16 or f16
  Tensor amax;           // [1] f32
  ConstTensor end = {};  // optional, one i32: rows from it on are not read
};

// Quantises x by rows, as [R, C] codes whose scales run along C, and by columns, as the transposed
// [C, R] codes whose scales run along R. The two are computed from x, not from each other.
struct QuantizeArgs {
  ConstTensor x;                   // [R, C], f32, bf16 or f16
  Tensor rows = {}, columns = {};  // optional, at least one: [R, C] and [C, R], one 8-bit format
  // Scales of each, present exactly if the codes are; written.
  Tensor rows_scale = {}, columns_scale = {};
  ScaleShape shape = ScaleShape::tensor;  // of both; tensor or row_128
  // With ScaleShape::tensor only: [1] f32, a of all values. It may be smaller than the largest
  // magnitude of x (delayed scaling): values beyond saturate.
  ConstTensor amax = {};
  Tensor counts = {};       // optional, one QuantizeCounts (u8): its amax is raised by that of x,
                            // or of `amax` with ScaleShape::tensor unless `is_delayed`
  bool measures = false;    // also add the other counts, of `rows` if present, otherwise `columns`
  bool is_delayed = false;  // counts->amax_bits is raised by x itself, as for row_128
  // Optional, one i32: rows of x from it on are neither read nor counted, and their codes and
  // scales are not written. With row_128 and `columns` it is a multiple of 128.
  ConstTensor end = {};
};

// ---- weights. A rank updates the elements [first, first + n) of `count` matrices [rows, cols]
// that lie one after the other; all ranks together have all. Each matrix has its own scales
// (scale_spec() of one matrix, one after the other): ScaleShape::tensor or block_128.

// amax = max(amax, largest magnitude of the elements that share it).
struct WeightAmaxArgs {
  ConstTensor weights;  // [n] f32
  int64_t first = 0;
  int64_t count = 1, rows = 0, cols = 0;
  ScaleShape shape = ScaleShape::tensor;
  Tensor amax;  // [count * scales of one matrix] f32, contiguous
};

// codes[i] = the code of weights[i]; all scales are written, whatever elements the rank has.
struct WeightQuantizeArgs {
  ConstTensor weights;  // [n] f32
  int64_t first = 0;
  int64_t count = 1, rows = 0, cols = 0;
  ScaleShape shape = ScaleShape::tensor;
  ConstTensor amax;    // as above, final
  Tensor codes;        // [n], 8-bit
  Tensor scale;        // shape of amax
  Tensor counts = {};  // optional, one QuantizeCounts: its amax is raised by all of `amax`
  bool measures = false;
};

// d[i] = x[i] transposed, `count` matrices one after the other: 8-bit codes, or f32 scales, whose
// rows may be padded (row_stride).
struct TransposeArgs {
  ConstTensor x;  // [count * rows, cols]
  Tensor d;       // [count * cols, rows]
  int64_t count = 1;
};

// ---- delayed scaling: the scales of a step are those of the largest magnitudes of steps before.

// amax[i] = max(amax[i], the largest magnitude that cell i has counted); infinity if that is not
// finite.
struct CollectAmaxArgs {
  ConstTensor counts;  // [n, sizeof(QuantizeCounts)] u8
  Tensor amax;         // [n] f32
};

// Enters amax[i] as the newest of the H magnitudes history[i], unless it is 0 or not finite; then
// largest[i] = the maximum of history[i], and amax[i] = 0. Nothing is entered in a skipped step.
struct RotateAmaxArgs {
  Tensor amax;             // [n] f32, at most 1,024
  Tensor history;          // [n, H] f32, contiguous, newest first
  Tensor largest;          // [n] f32
  ConstTensor state = {};  // optional, one StepState: was the step skipped?
};

}  // namespace trireme::kernels
