// SPDX-License-Identifier: Apache-2.0
#include "spec/facts/quantize_cost.h"

namespace trireme::spec {
namespace {

int64_t bytes_moved(const base::TensorSpec& spec) {
  return spec.shape.elements() * base::size_of(spec.dtype);
}

OpCost streamed(OpKind kind, const base::TensorSpec& main, int64_t bytes) {
  return {
      .kind = kind, .m = main.shape[0], .n = main.shape[1], .dtype = main.dtype, .bytes = bytes};
}

}  // namespace

OpCost amax_cost(const base::TensorSpec& x) { return streamed(OpKind::amax, x, bytes_moved(x)); }

OpCost quantize_cost(const QuantizeShape& q) {
  const int64_t rows = q.x.shape[0], cols = q.x.shape[1];
  int64_t bytes = bytes_moved(q.x);
  if (q.by_rows) bytes += rows * cols + bytes_moved(scale_spec(q.shape, rows, cols));
  if (q.by_columns) bytes += rows * cols + bytes_moved(scale_spec(q.shape, cols, rows));
  return streamed(OpKind::quantize, q.x, bytes);
}

OpCost transpose_cost(const base::TensorSpec& x) {
  return streamed(OpKind::transpose, x, 2 * bytes_moved(x));
}

}  // namespace trireme::spec
