// SPDX-License-Identifier: Apache-2.0
// FeedForward with products in 8 bits, in the order of spec/facts/float8_facts.cpp.
#include "kernels/ops.h"
#include "nn/feed_forward.h"
#include "nn/float8.h"

namespace trireme::nn {
namespace {

namespace ops = kernels::ops;
using kernels::AddTerms;
using spec::BlockParam;
using spec::BlockSlot;
using spec::Quantized;

}  // namespace

void FeedForward::forward_codes(Pass& pass) const {
  Stash& stash = pass.stash;
  const Quantizer quantizer(pass);
  if (pass.fills(BlockSlot::up)) {
    const device::Arena::Mark mark(pass.scratch);
    const Codes h2 = norm_codes(pass, {.which = Quantized::h2,
                                       .x = stash[BlockSlot::x2],
                                       .weight = BlockParam::norm2_weight,
                                       .bias = BlockParam::norm2_bias,
                                       .stats = stash[BlockSlot::stats2],
                                       .columns = written_codes(pass, BlockSlot::h2_t)});
    linear_forward(pass, {.x = h2.values,
                          .weight = at(pass.params, BlockParam::up_weight),
                          .x_scale = h2.scale,
                          .weight_scale = at(pass.scales, BlockParam::up_weight),
                          .epilogue = AddTerms{.bias = at(pass.params, BlockParam::up_bias)},
                          .y = stash[BlockSlot::up]});
  }
  const Tensor columns = written_codes(pass, BlockSlot::act_t);
  if (pass.recomputing && !columns) return;
  const device::Arena::Mark mark(pass.scratch);
  const Tensor up = stash[BlockSlot::up];
  const int64_t rows = up.rows(), width = spec_.ffn;
  const Codes codes = pass.recomputing ? Codes{} : quantizer.take(Quantized::act, rows, width);
  {
    const device::Arena::Mark inner(pass.scratch);
    const Tensor act = pass.scratch.take({{rows, width}, up.dtype});
    const Tensor amax = quantizer.amax(Quantized::act);
    const kernels::QuantizeArgs quantize = quantizer.quantize_args(
        Quantized::act, act, codes, quantizer.transposed(Quantized::act, columns, rows, width));
    if (spec_.activation == spec::Activation::gelu) {
      ops::gelu_forward(pass.stream, {.x = up, .y = act, .amax = amax});
      ops::quantize(pass.stream, quantize);
    } else {
      ops::swiglu_forward_quantize(pass.stream, {.gate_up = up, .y = act, .amax = amax}, quantize);
    }
  }
  if (pass.recomputing) return;
  tp_.linear_forward(pass, {.x = codes.values,
                            .weight = at(pass.params, BlockParam::down_weight),
                            .x_scale = codes.scale,
                            .weight_scale = at(pass.scales, BlockParam::down_weight),
                            .epilogue = AddTerms{.bias = at(pass.params, BlockParam::down_bias),
                                                 .residual = stash[BlockSlot::x2]},
                            .y = pass.y});
}

void FeedForward::backward_codes(Pass& pass) const {
  Stash& stash = pass.stash;
  const Quantizer quantizer(pass);
  const device::Arena::Mark mark(pass.scratch);
  const Tensor up = stash[BlockSlot::up];
  const int64_t rows = up.rows();
  const Tensor dup = pass.scratch.take({{rows, spec_.up_width()}, up.dtype});
  // With scales that are known SwiGLU's backward quantises its result. Otherwise transposed codes
  // overwrite `up`, which nothing reads when dup has been made.
  const bool is_paired =
      spec_.activation == spec::Activation::swiglu && !pass.recipe.fp8->finds_amax();
  const Codes codes = is_paired ? quantizer.take(Quantized::dup, rows, spec_.up_width()) : Codes{};
  make_dup(pass, dup, codes);
  const Tensor dh2 = pass.scratch.take({{pass.dy.rows(), spec_.width}, up.dtype});
  codes_backward_input(pass, {.which = Quantized::dup,
                              .dy = dup,
                              .slot = stash[BlockSlot::dup_t],
                              .codes = codes,
                              .weight = BlockParam::up_weight,
                              .dx = dh2,
                              .sums_along_tp = true});
  const Tensor h2_t = pass.recomputed_in_b(BlockSlot::h2_t);
  const Tensor h2 = h2_t ? pass.scratch.take({dh2.shape, dh2.dtype}) : Tensor{};
  const Tensor down_bias = bias_grad(pass, Half::input, BlockParam::down_bias);
  ops::norm_backward(pass.stream,
                     {.kind = spec_.norm,
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
                      .y = h2,
                      .partials = pass.scratch.take(norm_partials(dh2.rows(), down_bias)),
                      .amax = tp_.splits_rows() ? Tensor{} : quantizer.amax(Quantized::dx2)});
  if (h2_t) requantize(pass, Quantized::h2, h2, h2_t);
}

// The gradient of `up`, its codes if there is memory for them, and the transposed codes of dy and,
// if they are recomputed here, of act.
void FeedForward::make_dup(Pass& pass, Tensor dup, const Codes& codes) const {
  Stash& stash = pass.stash;
  const Quantizer quantizer(pass);
  const device::Arena::Mark mark(pass.scratch);
  const bool is_gelu = spec_.activation == spec::Activation::gelu;
  const Tensor up = stash[BlockSlot::up];
  const base::TensorSpec inner{{up.rows(), spec_.ffn}, up.dtype};
  const Tensor dact = is_gelu ? dup : pass.scratch.take(inner);
  const Tensor act_t = pass.recomputed_in_b(BlockSlot::act_t);
  const Tensor act = act_t ? pass.scratch.take(inner) : Tensor{};
  const Tensor dy = tp_.gather_rows(pass, pass.dy, stash[BlockSlot::dy_whole]);
  quantizer.find_amax(Quantized::dy, dy);
  CodesGradient down{.which = Quantized::dy,
                     .dy = dy,
                     .slot = stash[BlockSlot::dy_t],
                     .weight = BlockParam::down_weight,
                     .dx = dact};
  if (is_gelu) {
    down.epilogue = kernels::GeluGradient{
        .input = up, .d_sum = bias_grad(pass, Half::input, BlockParam::up_bias), .gelu = act};
  }
  codes_backward_input(pass, down);
  if (is_gelu) {
    quantizer.find_amax(Quantized::dup, dup);
  } else {
    const kernels::SwigluBackwardArgs swiglu{.gate_up = up,
                                             .dy = dact,
                                             .dgate_up = dup,
                                             .y = act,
                                             .amax = quantizer.amax(Quantized::dup)};
    if (codes.values) {
      const Codes columns =
          quantizer.transposed(Quantized::dup, stash[BlockSlot::dup_t], dup.rows(), dup.cols());
      ops::swiglu_backward_quantize(pass.stream, swiglu,
                                    quantizer.quantize_args(Quantized::dup, dup, codes, columns));
    } else {
      ops::swiglu_backward(pass.stream, swiglu);
    }
  }
  if (act_t) {
    quantizer.quantize(Quantized::act, act, {},
                       quantizer.transposed(Quantized::act, act_t, act.rows(), act.cols()));
  }
}

void FeedForward::weights_of_codes(Pass& pass) const {
  Stash& stash = pass.stash;
  const Quantizer quantizer(pass);
  const int64_t rows = shape_.tokens;
  const auto codes = [&](Quantized which, BlockSlot slot, int64_t width) {
    return quantizer.transposed(which, stash[slot], rows, width);
  };
  codes_product(pass, codes(Quantized::dy, BlockSlot::dy_t, spec_.width),
                codes(Quantized::act, BlockSlot::act_t, spec_.ffn), BlockParam::down_weight,
                BlockParam::down_bias);
  codes_product(pass, codes(Quantized::dup, BlockSlot::dup_t, spec_.up_width()),
                codes(Quantized::h2, BlockSlot::h2_t, spec_.width), BlockParam::up_weight,
                BlockParam::up_bias);
}

}  // namespace trireme::nn
