// SPDX-License-Identifier: Apache-2.0
#include "nn/feed_forward.h"

#include "base/check.h"
#include "kernels/ops.h"
#include "nn/linear.h"

namespace trireme::nn {
namespace {

namespace ops = kernels::ops;
using kernels::AddTerms;
using spec::BlockParam;
using spec::BlockSlot;

// If true, the backward reads GELU's input again; otherwise the slot `up` holds GELU's slope.
bool recomputes_act(const Pass& pass) {
  return pass.stash.fate(BlockSlot::act) == spec::Fate::recomputed_in_b;
}

kernels::Epilogue gelu_forward(const Pass& pass) {
  const Tensor bias = pass.params[static_cast<size_t>(BlockParam::up_bias)],
               up = pass.stash[BlockSlot::up];
  if (recomputes_act(pass)) return kernels::GeluForward{.bias = bias, .input = up};
  return kernels::GeluForwardSlope{.bias = bias, .slope = up};
}

kernels::Epilogue gelu_gradient(const Pass& pass, Tensor bias_grad) {
  const Tensor up = pass.stash[BlockSlot::up];
  if (!recomputes_act(pass)) return kernels::ScaleBy{.factor = up, .d_sum = bias_grad};
  return kernels::GeluGradient{
      .input = up, .d_sum = bias_grad, .gelu = pass.recomputed_in_b(BlockSlot::act)};
}

}  // namespace

void FeedForward::forward(Pass& pass) const {
  const device::Range range(pass.stream, "mlp");
  if (pass.recipe.fp8) return forward_codes(pass);
  Stash& stash = pass.stash;
  if (pass.fills(BlockSlot::h2)) {
    ops::norm_forward(pass.stream, {.kind = spec_.norm,
                                    .eps = spec_.norm_eps,
                                    .x = stash[BlockSlot::x2],
                                    .weight = at(pass.params, BlockParam::norm2_weight),
                                    .bias = at(pass.params, BlockParam::norm2_bias),
                                    .y = stash[BlockSlot::h2],
                                    .stats = stash[BlockSlot::stats2]});
  }
  const bool gelu = spec_.activation == spec::Activation::gelu;
  TRIREME_CHECK(!gelu || pass.fills(BlockSlot::up) || !pass.fills(BlockSlot::act),
                "GELU's act must be computed with up, or recomputed in the backward");
  const bool swiglu_follows = !gelu && pass.fills(BlockSlot::act);
  if (pass.fills(BlockSlot::up)) {
    const device::Arena::Mark mark(pass.scratch);
    linear_forward(pass, {.x = tp_.gather_rows(pass, stash[BlockSlot::h2]),
                          .weight = at(pass.params, BlockParam::up_weight),
                          .epilogue = gelu ? gelu_forward(pass)
                                           : AddTerms{.bias = at(pass.params, BlockParam::up_bias)},
                          .y = stash[gelu ? BlockSlot::act : BlockSlot::up],
                          .swiglu = swiglu_follows ? stash[BlockSlot::act] : Tensor{}});
  } else if (swiglu_follows) {
    ops::swiglu_forward(pass.stream, {.gate_up = stash[BlockSlot::up], .y = stash[BlockSlot::act]});
  }
  if (!pass.recomputing) {
    tp_.linear_forward(pass, {.x = stash[BlockSlot::act],
                              .weight = at(pass.params, BlockParam::down_weight),
                              .epilogue = AddTerms{.bias = at(pass.params, BlockParam::down_bias),
                                                   .residual = stash[BlockSlot::x2]},
                              .y = pass.y});
  }
}

void FeedForward::backward_input(Pass& pass) const {
  const device::Range range(pass.stream, "mlp backward");
  if (pass.recipe.fp8) return backward_codes(pass);
  Stash& stash = pass.stash;
  const int64_t rows = pass.dy.rows();
  const Tensor dy = tp_.gather_rows(pass, pass.dy, stash[BlockSlot::dy_whole]);
  const Tensor dup = stash[BlockSlot::dup];
  if (spec_.activation == spec::Activation::gelu) {
    linear_backward_input(
        pass, {.dy = dy,
               .weight = at(pass.params, BlockParam::down_weight),
               .dx = dup,
               .epilogue = gelu_gradient(pass, bias_grad(pass, Half::input, BlockParam::up_bias))});
  } else {
    const device::Arena::Mark mark(pass.scratch);
    const Tensor dact = pass.scratch.take({{dy.rows(), spec_.ffn}, dy.dtype});
    linear_backward_input(pass, {.dy = dy,
                                 .weight = at(pass.params, BlockParam::down_weight),
                                 .dx = dact,
                                 .swiglu = {.gate_up = stash[BlockSlot::up],
                                            .dy = dact,
                                            .dgate_up = dup,
                                            .y = pass.recomputed_in_b(BlockSlot::act)}});
  }
  const device::Arena::Mark mark(pass.scratch);
  const Tensor dh2 = pass.scratch.take({{rows, spec_.width}, pass.dy.dtype});
  tp_.linear_backward_input(
      pass, {.dy = dup, .weight = at(pass.params, BlockParam::up_weight), .dx = dh2});
  const Tensor down_bias = bias_grad(pass, Half::input, BlockParam::down_bias);
  ops::norm_backward(pass.stream, {.kind = spec_.norm,
                                   .dy = dh2,
                                   .x = stash[BlockSlot::x2],
                                   .stats = stash[BlockSlot::stats2],
                                   .weight = at(pass.params, BlockParam::norm2_weight),
                                   .dresidual = pass.dy,
                                   .dx = stash[BlockSlot::dx2],
                                   .dweight = at(pass.grads, BlockParam::norm2_weight),
                                   .dbias = at(pass.grads, BlockParam::norm2_bias),
                                   .dresidual_sum = down_bias,
                                   .bias = at(pass.params, BlockParam::norm2_bias),
                                   .y = pass.recomputed_in_b(BlockSlot::h2),
                                   .partials = pass.scratch.take(norm_partials(rows, down_bias))});
}

void FeedForward::backward_weight(Pass& pass) const {
  if (pass.recipe.fp8) return weights_of_codes(pass);
  Stash& stash = pass.stash;
  weight_product(pass, tp_.gathered_rows(pass.dy, stash[BlockSlot::dy_whole]),
                 stash[BlockSlot::act], BlockParam::down_weight, BlockParam::down_bias);
  weight_product_of_norm(pass, stash[BlockSlot::dup], stash[BlockSlot::h2], BlockParam::up_weight,
                         BlockParam::up_bias);
}

}  // namespace trireme::nn
