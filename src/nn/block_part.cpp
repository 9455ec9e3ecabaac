// SPDX-License-Identifier: Apache-2.0
#include "nn/block_part.h"

#include "nn/linear.h"

namespace trireme::nn {

Tensor BlockPart::bias_grad(const Pass& pass, Half half, spec::BlockParam bias) const {
  const bool is_in_b = spec::is_bias_made_in_b(spec_, shape_, bias);
  return is_in_b == (half == Half::input) ? at(pass.grads, bias) : Tensor{};
}

void BlockPart::weight_product(const Pass& pass, Tensor dy, Tensor x, spec::BlockParam weight,
                               spec::BlockParam bias) const {
  linear_backward_weight(pass, {.dy = dy,
                                .x = x,
                                .weight_grad = at(pass.grads, weight),
                                .writes = pass.writes,
                                .bias_grad = bias_grad(pass, Half::weight, bias)});
}

void BlockPart::weight_product_of_norm(Pass& pass, Tensor dy, Tensor norm, spec::BlockParam weight,
                                       spec::BlockParam bias) const {
  const device::Arena::Mark mark(pass.scratch);
  weight_product(pass, dy, tp_.gather_rows(pass, norm), weight, bias);
}

}  // namespace trireme::nn
