// SPDX-License-Identifier: Apache-2.0
#include "kernels/op_checks.h"
#include "kernels/ops.h"
#include "kernels/step_state.h"

namespace trireme::kernels::ops {
namespace {

void is_stored(const char* op, const char* name, const ConstTensor& t) {
  TRIREME_CHECK(t.dtype == DType::f32 || t.dtype == DType::bf16 || t.dtype == DType::f16,
                "{}: {} is {}, not f32, bf16 or f16", op, name, base::name_of(t.dtype));
}

void is_codes(const char* op, const char* name, const ConstTensor& t) {
  TRIREME_CHECK(base::is_float8(t.dtype), "{}: {} is {}, not an 8-bit float", op, name,
                base::name_of(t.dtype));
}

void has_counts(const char* op, const Tensor& counts) {
  if (counts) holds<QuantizeCounts>(op, "counts", counts);
}

// Codes and their scales, both or none.
void check_codes(const char* op, const char* name, const Tensor& codes, const Tensor& scale,
                 ScaleShape shape, int64_t rows, int64_t cols) {
  TRIREME_CHECK(static_cast<bool>(codes) == static_cast<bool>(scale), "{}: {} without its scales",
                op, name);
  if (!codes) return;
  has(op, name, codes, {rows, cols});
  is_codes(op, name, codes);
  has(op, "scales", scale, spec::scale_spec(shape, rows, cols).shape, DType::f32);
}

// Returns the scales of all matrices.
int64_t scales_of(ScaleShape shape, int64_t count, int64_t rows, int64_t cols) {
  return count * spec::scale_spec(shape, rows, cols).shape.elements();
}

template <typename Args>
void check_weights(const char* op, const Args& a) {
  has(op, "weights", a.weights, {a.weights.rows()}, DType::f32);
  TRIREME_CHECK(a.first >= 0 && a.first + a.weights.elements() <= a.count * a.rows * a.cols,
                "{}: elements {} + {} of {} matrices [{}, {}]", op, a.first, a.weights.elements(),
                a.count, a.rows, a.cols);
  TRIREME_CHECK(a.shape != ScaleShape::row_128, "{}: weights have one scale a row of 128", op);
  has(op, "amax", a.amax, {scales_of(a.shape, a.count, a.rows, a.cols)}, DType::f32);
}

}  // namespace

void amax(Stream& stream, const AmaxArgs& a) {
  is_stored("amax", "x", a.x);
  has("amax", "amax", a.amax, {1}, DType::f32);
  may_have("amax", "end", a.end, {1}, DType::i32);
  send(stream, &Kernels::amax, a);
}

void check(const QuantizeArgs& a) {
  const char* op = "quantize";
  const int64_t rows = a.x.rows(), cols = a.x.cols();
  is_stored(op, "x", a.x);
  TRIREME_CHECK(a.rows || a.columns, "quantize: no codes to write");
  TRIREME_CHECK(!a.rows || !a.columns || a.rows.dtype == a.columns.dtype,
                "quantize: rows in {}, columns in {}", base::name_of(a.rows.dtype),
                base::name_of(a.columns.dtype));
  check_codes(op, "rows", a.rows, a.rows_scale, a.shape, rows, cols);
  check_codes(op, "columns", a.columns, a.columns_scale, a.shape, cols, rows);
  TRIREME_CHECK(a.shape != ScaleShape::block_128, "quantize: blocks of 128 x 128 are of weights");
  const bool is_tensor = a.shape == ScaleShape::tensor;
  TRIREME_CHECK(is_tensor == static_cast<bool>(a.amax), "quantize: amax comes with one scale");
  may_have(op, "amax", a.amax, {1}, DType::f32);
  may_have(op, "end", a.end, {1}, DType::i32);
  has_counts(op, a.counts);
  TRIREME_CHECK(a.counts || !a.measures, "quantize: measures without counts");
}

void quantize(Stream& stream, const QuantizeArgs& a) {
  check(a);
  send(stream, &Kernels::quantize, a);
}

void weight_amax(Stream& stream, const WeightAmaxArgs& a) {
  check_weights("weight_amax", a);
  send(stream, &Kernels::weight_amax, a);
}

void weight_quantize(Stream& stream, const WeightQuantizeArgs& a) {
  const char* op = "weight_quantize";
  check_weights(op, a);
  has(op, "codes", a.codes, a.weights.shape);
  is_codes(op, "codes", a.codes);
  has(op, "scale", a.scale, a.amax.shape, DType::f32);
  has_counts(op, a.counts);
  TRIREME_CHECK(a.counts || !a.measures, "weight_quantize: measures without counts");
  send(stream, &Kernels::weight_quantize, a);
}

void transpose(Stream& stream, const TransposeArgs& a) {
  const char* op = "transpose";
  TRIREME_CHECK(a.count >= 1 && a.x.rows() % a.count == 0, "transpose: {} rows in {} matrices",
                a.x.rows(), a.count);
  TRIREME_CHECK(base::is_float8(a.x.dtype) || a.x.dtype == DType::f32,
                "transpose: x is {}, not an 8-bit float or f32", base::name_of(a.x.dtype));
  has(op, "x", a.x, {a.x.rows(), a.x.cols()});
  has(op, "d", a.d, {a.count * a.x.cols(), a.x.rows() / a.count}, a.x.dtype);
  send(stream, &Kernels::transpose, a);
}

void collect_amax(Stream& stream, const CollectAmaxArgs& a) {
  const char* op = "collect_amax";
  const int64_t n = a.amax.rows();
  has(op, "counts", a.counts, {n, static_cast<int64_t>(sizeof(QuantizeCounts))}, DType::u8);
  has(op, "amax", a.amax, {n}, DType::f32);
  send(stream, &Kernels::collect_amax, a);
}

void rotate_amax(Stream& stream, const RotateAmaxArgs& a) {
  const char* op = "rotate_amax";
  const int64_t n = a.amax.rows();
  TRIREME_CHECK(n <= 1024, "{}: {} magnitudes, more than 1024", op, n);
  has(op, "amax", a.amax, {n}, DType::f32);
  has(op, "history", a.history, {n, a.history.cols()}, DType::f32);
  TRIREME_CHECK(a.history.is_contiguous(), "rotate_amax: history is not contiguous");
  has(op, "largest", a.largest, {n}, DType::f32);
  if (a.state) holds<StepState>(op, "state", a.state);
  send(stream, &Kernels::rotate_amax, a);
}

}  // namespace trireme::kernels::ops
