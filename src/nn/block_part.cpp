// SPDX-License-Identifier: Apache-2.0
#include "nn/block_part.h"

#include "kernels/ops.h"
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

Codes BlockPart::norm_codes(Pass& pass, const NormCodes& a) const {
  const Quantizer quantizer(pass);
  const int64_t rows = shape_.tokens, cols = a.x.cols();
  const Codes codes = quantizer.take(a.which, rows, cols);
  const device::Arena::Mark mark(pass.scratch);
  const Tensor norm = pass.scratch.take({a.x.shape, a.x.dtype});
  // A rank with a part of the rows does not know the largest magnitude of all.
  const Tensor amax = tp_.splits_rows() ? Tensor{} : quantizer.amax(a.which);
  kernels::ops::norm_forward(pass.stream, {.kind = spec_.norm,
                                           .eps = spec_.norm_eps,
                                           .x = a.x,
                                           .weight = at(pass.params, a.weight),
                                           .bias = at(pass.params, a.bias),
                                           .y = norm,
                                           .stats = a.stats,
                                           .amax = amax});
  const Tensor all = tp_.gather_rows(pass, norm);
  if (tp_.splits_rows()) quantizer.find_amax(a.which, all);
  quantizer.quantize(a.which, all, codes, quantizer.transposed(a.which, a.columns, rows, cols));
  return codes;
}

void BlockPart::codes_product(const Pass& pass, const Codes& dy, const Codes& x,
                              spec::BlockParam weight, spec::BlockParam bias) const {
  linear_backward_weight(pass, {.dy = dy.values,
                                .x = x.values,
                                .dy_scale = dy.scale,
                                .x_scale = x.scale,
                                .weight_grad = at(pass.grads, weight),
                                .writes = pass.writes,
                                .bias_grad = bias_grad(pass, Half::weight, bias)});
}

void BlockPart::codes_backward_input(Pass& pass, const CodesGradient& a) const {
  const device::Arena::Mark mark(pass.scratch);
  const Quantizer quantizer(pass);
  Codes dy = a.codes;
  if (!dy.values) {
    const int64_t rows = a.dy.rows(), cols = a.dy.cols();
    dy = quantizer.take(a.which, rows, cols);
    quantizer.quantize(a.which, a.dy, dy, quantizer.transposed(a.which, a.slot, rows, cols));
  }
  const Codes weight = quantizer.transposed_weight(a.weight);
  const LinearBackwardInput product{.dy = dy.values,
                                    .weight = weight.values,
                                    .dy_scale = dy.scale,
                                    .weight_scale = weight.scale,
                                    .dx = a.dx,
                                    .epilogue = a.epilogue};
  if (a.sums_along_tp) {
    tp_.linear_backward_input(pass, product);
  } else {
    linear_backward_input(pass, product);
  }
}

void BlockPart::requantize(Pass& pass, spec::Quantized which, Tensor norm, Tensor slot) const {
  const device::Arena::Mark mark(pass.scratch);
  const Quantizer quantizer(pass);
  const Tensor all = tp_.gather_rows(pass, norm);
  quantizer.quantize(which, all, {}, quantizer.transposed(which, slot, all.rows(), all.cols()));
}

}  // namespace trireme::nn
