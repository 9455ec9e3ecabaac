// SPDX-License-Identifier: Apache-2.0
#include "spec/facts/op_shapes.h"

namespace trireme::spec {

base::TensorSpec norm_backward_partials(NormKind kind, int64_t rows, int64_t width,
                                        bool sums_dresidual) {
  const int64_t sums = norm_stats(kind) + (sums_dresidual ? 1 : 0);
  return {{norm_partials(rows), width * sums}, base::DType::f32};
}

}  // namespace trireme::spec
