// SPDX-License-Identifier: Apache-2.0
// Attention with products in 8 bits, in the order of spec/facts/float8_facts.cpp.
#include "kernels/ops.h"
#include "nn/attention/attention.h"
#include "nn/attention/rotation.h"
#include "nn/float8.h"

namespace trireme::nn {
namespace {

using kernels::AddTerms;
using spec::BlockParam;
using spec::BlockSlot;
using spec::Quantized;

}  // namespace

void Attention::project_codes(Pass& pass, Tensor qkv) const {
  const device::Arena::Mark mark(pass.scratch);
  const Codes h1 = norm_codes(pass, {.which = Quantized::h1,
                                     .x = pass.x,
                                     .weight = BlockParam::norm1_weight,
                                     .bias = BlockParam::norm1_bias,
                                     .stats = pass.stash[BlockSlot::stats1],
                                     .columns = written_codes(pass, BlockSlot::h1_t)});
  linear_forward(pass, {.x = h1.values,
                        .weight = at(pass.params, BlockParam::qkv_weight),
                        .x_scale = h1.scale,
                        .weight_scale = at(pass.scales, BlockParam::qkv_weight),
                        .epilogue = AddTerms{.bias = at(pass.params, BlockParam::qkv_bias)},
                        .y = qkv});
}

void Attention::project_out_codes(Pass& pass) const {
  const device::Arena::Mark mark(pass.scratch);
  const Quantizer quantizer(pass);
  const Tensor o = pass.stash[BlockSlot::o];
  quantizer.find_amax(Quantized::o, o);
  const Codes codes = quantizer.take(Quantized::o, o.rows(), o.cols());
  quantizer.quantize(Quantized::o, o, codes, {});
  tp_.linear_forward(pass, {.x = codes.values,
                            .weight = at(pass.params, BlockParam::out_weight),
                            .x_scale = codes.scale,
                            .weight_scale = at(pass.scales, BlockParam::out_weight),
                            .epilogue = AddTerms{.bias = at(pass.params, BlockParam::out_bias),
                                                 .residual = pass.x},
                            .y = pass.stash[BlockSlot::x2]});
}

void Attention::backward_codes(Pass& pass) const {
  Stash& stash = pass.stash;
  const Quantizer quantizer(pass);
  const device::Arena::Mark mark(pass.scratch);
  const Tensor dx2 = stash[BlockSlot::dx2];
  const Tensor dx2_whole = tp_.gather_rows(pass, dx2, stash[BlockSlot::dx2_whole]);
  // The norm of the feed-forward computes it of the rows that it has.
  if (tp_.splits_rows() || spec_.moe) quantizer.find_amax(Quantized::dx2, dx2_whole);
  const Tensor dqkv = pass.scratch.take({{shape_.tokens, spec_.qkv_width()}, dx2.dtype});
  const auto make_dout = [&](Tensor dout) {
    codes_backward_input(pass, {.which = Quantized::dx2,
                                .dy = dx2_whole,
                                .slot = stash[BlockSlot::dx2_t],
                                .weight = BlockParam::out_weight,
                                .dx = dout});
  };
  core_->backward(pass, kept_heads(pass), make_dout, split_heads(dqkv, spec_));
  if (spec_.rope) rotate_back(pass, spec_, dqkv);
  quantizer.find_amax(Quantized::dqkv, dqkv);
  const Tensor dh1 = pass.scratch.take({dx2.shape, dx2.dtype});
  codes_backward_input(pass, {.which = Quantized::dqkv,
                              .dy = dqkv,
                              .slot = stash[BlockSlot::dqkv_t],
                              .weight = BlockParam::qkv_weight,
                              .dx = dh1,
                              .sums_along_tp = true});
  const Tensor h1_t = pass.recomputed_in_b(BlockSlot::h1_t);
  const Tensor h1 = h1_t ? pass.scratch.take({dh1.shape, dh1.dtype}) : Tensor{};
  const Tensor out_bias = bias_grad(pass, Half::input, BlockParam::out_bias);
  kernels::ops::norm_backward(pass.stream,
                              {.kind = spec_.norm,
                               .dy = dh1,
                               .x = pass.x,
                               .stats = stash[BlockSlot::stats1],
                               .weight = at(pass.params, BlockParam::norm1_weight),
                               .dresidual = dx2,
                               .dx = pass.dx,
                               .dweight = at(pass.grads, BlockParam::norm1_weight),
                               .dbias = at(pass.grads, BlockParam::norm1_bias),
                               .dresidual_sum = out_bias,
                               .bias = at(pass.params, BlockParam::norm1_bias),
                               .y = h1,
                               .partials = pass.scratch.take(norm_partials(dh1.rows(), out_bias))});
  if (h1_t) requantize(pass, Quantized::h1, h1, h1_t);
}

void Attention::weights_of_codes(Pass& pass) const {
  Stash& stash = pass.stash;
  const Quantizer quantizer(pass);
  const int64_t rows = shape_.tokens;
  const auto codes = [&](Quantized which, Tensor memory, int64_t width) {
    return quantizer.transposed(which, memory, rows, width);
  };
  {
    const device::Arena::Mark mark(pass.scratch);
    const Tensor o = stash[BlockSlot::o];
    const Codes o_t =
        codes(Quantized::o,
              pass.scratch.take(spec::codes_spec(pass.recipe.fp8->rows, o.cols(), rows)), o.cols());
    quantizer.quantize(Quantized::o, o, {}, o_t);
    codes_product(pass, codes(Quantized::dx2, stash[BlockSlot::dx2_t], spec_.width), o_t,
                  BlockParam::out_weight, BlockParam::out_bias);
  }
  codes_product(pass, codes(Quantized::dqkv, stash[BlockSlot::dqkv_t], spec_.qkv_width()),
                codes(Quantized::h1, stash[BlockSlot::h1_t], spec_.width), BlockParam::qkv_weight,
                BlockParam::qkv_bias);
}

}  // namespace trireme::nn
