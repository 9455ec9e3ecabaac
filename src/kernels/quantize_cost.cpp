// SPDX-License-Identifier: Apache-2.0
#include "spec/facts/quantize_cost.h"
#include "kernels/cost.h"

namespace trireme::kernels {
namespace {

base::TensorSpec matrix_of(const ConstTensor& t) { return {{t.rows(), t.cols()}, t.dtype}; }

// The cost of an op on a flat range of weights.
spec::OpCost of_weights(spec::OpKind kind, const ConstTensor& weights, int64_t bytes) {
  return {.kind = kind,
          .m = 1,
          .n = weights.elements(),
          .dtype = weights.dtype,
          .bytes = weights.bytes() + bytes};
}

}  // namespace

spec::OpCost cost_of(const AmaxArgs& a) { return spec::amax_cost(matrix_of(a.x)); }

spec::OpCost cost_of(const QuantizeArgs& a) {
  return spec::quantize_cost({.x = matrix_of(a.x),
                              .by_rows = static_cast<bool>(a.rows),
                              .by_columns = static_cast<bool>(a.columns),
                              .shape = a.shape});
}

spec::OpCost cost_of(const WeightAmaxArgs& a) {
  return of_weights(spec::OpKind::weight_amax, a.weights, 0);
}

spec::OpCost cost_of(const WeightQuantizeArgs& a) {
  return of_weights(spec::OpKind::weight_quantize, a.weights, a.codes.bytes() + a.scale.bytes());
}

spec::OpCost cost_of(const TransposeArgs& a) { return spec::transpose_cost(matrix_of(a.x)); }

spec::OpCost cost_of(const CollectAmaxArgs& a) {
  return {.kind = spec::OpKind::collect_amax,
          .m = a.counts.rows(),
          .n = a.counts.cols(),
          .bytes = a.counts.bytes() + 2 * a.amax.bytes()};
}

spec::OpCost cost_of(const RotateAmaxArgs& a) {
  return {.kind = spec::OpKind::rotate_amax,
          .m = a.history.rows(),
          .n = a.history.cols(),
          .bytes = 2 * (a.history.bytes() + a.amax.bytes()) + a.largest.bytes() + a.state.bytes()};
}

}  // namespace trireme::kernels
