// SPDX-License-Identifier: Apache-2.0
#include "nn/float8.h"

#include "kernels/ops.h"

namespace trireme::nn {
namespace {

namespace ops = kernels::ops;
using spec::BlockSlot;
using spec::Quantized;
using spec::ScaleShape;

Tensor element(const Tensor& all, Quantized which) {
  return all.slice_rows(static_cast<int64_t>(which), 1);
}

}  // namespace

Codes codes_in(Tensor memory, base::DType format, ScaleShape shape, int64_t rows, int64_t cols) {
  return {device::view_of(memory.data, {{rows, cols}, format}),
          device::view_of(memory.data + spec::scales_offset(rows, cols),
                          spec::scale_spec(shape, rows, cols))};
}

void Quantizer::begin() const {
  if (pass_.recomputing) return;
  if (amax(Quantized::h1)) ops::fill(pass_.stream, {.d = pass_.stash[BlockSlot::amax]});
}

Tensor Quantizer::amax(Quantized which) const {
  if (!fp8_.finds_amax() || pass_.recomputing) return {};
  return element(pass_.stash[BlockSlot::amax], which);
}

void Quantizer::find_amax(Quantized which, ConstTensor x, ConstTensor end) const {
  if (const Tensor to = amax(which)) ops::amax(pass_.stream, {.x = x, .amax = to, .end = end});
}

Codes Quantizer::take(Quantized which, int64_t rows, int64_t cols) const {
  return codes_in(pass_.scratch.take(spec::codes_spec(fp8_.rows, rows, cols)), format(which),
                  fp8_.rows, rows, cols);
}

Codes Quantizer::transposed(Quantized which, Tensor slot, int64_t rows, int64_t cols) const {
  return slot ? codes_in(slot, format(which), fp8_.rows, cols, rows) : Codes{};
}

void Quantizer::quantize(Quantized which, ConstTensor x, const Codes& rows, const Codes& columns,
                         ConstTensor end) const {
  kernels::QuantizeArgs args = quantize_args(which, x, rows, columns);
  args.end = end;
  ops::quantize(pass_.stream, args);
}

kernels::QuantizeArgs Quantizer::quantize_args(Quantized which, ConstTensor x, const Codes& rows,
                                               const Codes& columns) const {
  kernels::QuantizeArgs args{.x = x,
                             .rows = rows.values,
                             .columns = columns.values,
                             .rows_scale = rows.scale,
                             .columns_scale = columns.scale,
                             .shape = fp8_.rows};
  if (fp8_.rows == ScaleShape::tensor) {
    args.amax = fp8_.is_delayed ? element(pass_.delayed_amax, which)
                                : element(pass_.stash[BlockSlot::amax], which);
    args.is_delayed = fp8_.is_delayed;
  }
  // What is quantised again, for W or while recomputing, is counted once.
  if (pass_.counts && rows.values && !pass_.recomputing && !pass_.evaluating) {
    args.counts = element(pass_.counts, which)
                      .reshape({static_cast<int64_t>(sizeof(kernels::QuantizeCounts))});
    args.measures = pass_.measures;
  }
  return args;
}

Codes Quantizer::transposed_experts(spec::BlockParam param) const {
  const Tensor weight = pass_.params[static_cast<size_t>(param)];
  const Tensor scale = pass_.scales[static_cast<size_t>(param)];
  const int64_t count = weight.shape[0], rows = weight.shape[1], cols = weight.shape[2];
  // Blocks of scales do not cross matrices: sizes are multiples of them.
  const Codes all = codes_in(pass_.scratch.take(spec::codes_spec(fp8_.weights, count * cols, rows)),
                             weight.dtype, fp8_.weights, count * cols, rows);
  ops::transpose(pass_.stream,
                 {.x = weight.reshape({count * rows, cols}), .d = all.values, .count = count});
  const Tensor values = all.values.reshape({count, cols, rows});
  if (fp8_.weights == ScaleShape::tensor) return {values, scale};
  const base::Shape one = spec::scale_spec(fp8_.weights, rows, cols).shape;
  const base::Shape other = spec::scale_spec(fp8_.weights, cols, rows).shape;
  ops::transpose(pass_.stream,
                 {.x = scale.reshape({count * one[0], one[1]}).slice_cols(0, other[0]),
                  .d = all.scale.slice_cols(0, one[0]),
                  .count = count});
  return {values, all.scale.reshape({all.scale.elements()})};
}

Codes Quantizer::transposed_weight(spec::BlockParam param) const {
  const Tensor weight = pass_.params[static_cast<size_t>(param)];
  const Tensor scale = pass_.scales[static_cast<size_t>(param)];
  const int64_t rows = weight.rows(), cols = weight.cols();
  Codes codes = codes_in(pass_.scratch.take(spec::codes_spec(fp8_.weights, cols, rows)),
                         weight.dtype, fp8_.weights, cols, rows);
  ops::transpose(pass_.stream, {.x = weight, .d = codes.values});
  if (fp8_.weights == ScaleShape::tensor) {
    codes.scale = scale;
  } else {
    const auto blocks = [](int64_t n) { return (n + spec::scale_block - 1) / spec::scale_block; };
    ops::transpose(pass_.stream, {.x = scale.slice_cols(0, blocks(cols)),
                                  .d = codes.scale.slice_cols(0, blocks(rows))});
  }
  return codes;
}

}  // namespace trireme::nn
