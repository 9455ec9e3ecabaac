// SPDX-License-Identifier: Apache-2.0
// The costs of the ops of kernels/quantize_args.h, from shapes. facts() and kernels/cost.h call
// them, so that both compute the same.
#pragma once

#include "spec/facts/op_cost.h"
#include "spec/recipe.h"

namespace trireme::spec {

OpCost amax_cost(const base::TensorSpec& x);

// The codes that quantize writes.
struct QuantizeShape {
  base::TensorSpec x;  // [R, C]
  bool by_rows = false, by_columns = false;
  ScaleShape shape = ScaleShape::tensor;
};
OpCost quantize_cost(const QuantizeShape&);

OpCost transpose_cost(const base::TensorSpec& x);

}  // namespace trireme::spec
