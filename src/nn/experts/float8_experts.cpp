// SPDX-License-Identifier: Apache-2.0
// ExpertFeedForward with the products of experts in 8 bits, in the order of
// spec/facts/experts/float8_expert_facts.cpp.
#include "kernels/ops.h"
#include "nn/experts/expert_feed_forward.h"

namespace trireme::nn {
namespace {

namespace ops = kernels::ops;
using base::DType;
using spec::BlockParam;
using spec::BlockSlot;
using spec::Quantized;

}  // namespace

kernels::GroupedScales ExpertFeedForward::scales_of(const Pass& pass, const Codes& rows,
                                                    ConstTensor weight_scale,
                                                    bool is_forward) const {
  const spec::Float8Recipe& fp8 = *pass.recipe.fp8;
  return {.a = rows.scale,
          .b = weight_scale.reshape({weight_scale.elements()}),
          .shape_a = fp8.rows,
          .shape_b = fp8.weights,
          .fast_sums = is_forward && fp8.fast_forward};
}

Tensor ExpertFeedForward::codes_forward(Pass& pass) const {
  Stash& stash = pass.stash;
  const Quantizer quantizer(pass);
  const bool has_up = pass.fills(BlockSlot::up);
  const Tensor act_t = written_codes(pass, BlockSlot::act_t);
  if (!has_up && !act_t) return {};
  const int64_t grouped = rows_.grouped, width = spec_.width, inner = moe().ffn;
  const DType act_type = stash[BlockSlot::up].dtype;
  // The rows of h2; then the results of experts.
  const Tensor rows = pass.scratch.take({{grouped, width}, act_type});
  if (has_up) {
    exchange_.receive(pass, stash[BlockSlot::h2], rows);
    if (!exchange_.is_local()) quantizer.find_amax(Quantized::h2, rows, end(pass));
    const device::Arena::Mark mark(pass.scratch);
    const Codes x = quantizer.take(Quantized::h2, grouped, width);
    quantizer.quantize(
        Quantized::h2, rows, x,
        quantizer.transposed(Quantized::h2, written_codes(pass, BlockSlot::h2_t), grouped, width),
        end(pass));
    ops::grouped_forward(
        pass.stream, {.x = x.values,
                      .weight = at(pass.params, BlockParam::up_weight),
                      .starts = stash[BlockSlot::starts],
                      .y = stash[BlockSlot::up],
                      .rows = rows_.expected(),
                      .scales = scales_of(pass, x, at(pass.scales, BlockParam::up_weight), true)});
  }
  if (pass.recomputing && !act_t) return {};
  {
    const device::Arena::Mark mark(pass.scratch);
    const Codes act = pass.recomputing ? Codes{} : quantizer.take(Quantized::act, grouped, inner);
    {
      const device::Arena::Mark values_mark(pass.scratch);
      const Tensor values = pass.scratch.take({{grouped, inner}, act_type});
      ops::grouped_swiglu(pass.stream, {.gate_up = stash[BlockSlot::up],
                                        .row_weight = stash[BlockSlot::row_weight],
                                        .end = end(pass),
                                        .act = values,
                                        .rows = rows_.expected(),
                                        .amax = quantizer.amax(Quantized::act)});
      quantizer.quantize(Quantized::act, values, act,
                         quantizer.transposed(Quantized::act, act_t, grouped, inner), end(pass));
    }
    if (pass.recomputing) return {};
    ops::grouped_forward(
        pass.stream,
        {.x = act.values,
         .weight = at(pass.params, BlockParam::down_weight),
         .starts = stash[BlockSlot::starts],
         .y = rows,
         .rows = rows_.expected(),
         .scales = scales_of(pass, act, at(pass.scales, BlockParam::down_weight), true)});
  }
  exchange_.answer(pass, rows);
  return rows;
}

Tensor ExpertFeedForward::codes_backward(Pass& pass) const {
  Stash& stash = pass.stash;
  const Quantizer quantizer(pass);
  const int64_t grouped = rows_.grouped, width = 2 * moe().ffn;
  // The rows of dy; then those of dh2.
  const Tensor rows = pass.scratch.take({{grouped, spec_.width}, pass.dy.dtype});
  {
    const device::Arena::Mark mark(pass.scratch);
    const Tensor dup = pass.scratch.take({{grouped, width}, pass.dy.dtype});
    make_dup(pass, rows, dup);
    const Codes codes = quantizer.take(Quantized::dup, grouped, width);
    // The transposed codes overwrite `up`, which nothing reads from here on.
    quantizer.quantize(
        Quantized::dup, dup, codes,
        quantizer.transposed(Quantized::dup, stash[BlockSlot::dup_t], grouped, width), end(pass));
    const Codes weight = quantizer.transposed_experts(BlockParam::up_weight);
    ops::grouped_backward_input(pass.stream,
                                {.dy = codes.values,
                                 .weight = weight.values,
                                 .starts = stash[BlockSlot::starts],
                                 .dx = rows,
                                 .rows = rows_.expected(),
                                 .scales = scales_of(pass, codes, weight.scale, false)});
  }
  exchange_.answer(pass, rows);
  return rows;
}

// The gradients of `up` and of the router's logits, and the transposed codes of the rows of dy and,
// if they are recomputed here, of act.
void ExpertFeedForward::make_dup(Pass& pass, Tensor rows, Tensor dup) const {
  Stash& stash = pass.stash;
  const Quantizer quantizer(pass);
  const device::Arena::Mark mark(pass.scratch);
  const int64_t grouped = rows_.grouped, width = spec_.width;
  const Tensor dweight = pass.scratch.take({{grouped}, DType::f32});
  {
    const device::Arena::Mark codes_mark(pass.scratch);
    const base::TensorSpec inner{{grouped, moe().ffn}, dup.dtype};
    const Tensor dact = pass.scratch.take(inner);
    const Tensor act_t = pass.recomputed_in_b(BlockSlot::act_t);
    const Tensor act = act_t ? pass.scratch.take(inner) : Tensor{};
    const Codes dy = quantizer.take(Quantized::dy, grouped, width);
    exchange_.receive(pass, pass.dy, rows);
    // On one rank the largest magnitude of the rows is that of dy.
    if (exchange_.is_local()) {
      quantizer.find_amax(Quantized::dy, pass.dy);
    } else {
      quantizer.find_amax(Quantized::dy, rows, end(pass));
    }
    quantizer.quantize(Quantized::dy, rows, dy,
                       quantizer.transposed(Quantized::dy, stash[BlockSlot::dy_t], grouped, width),
                       end(pass));
    const Codes weight = quantizer.transposed_experts(BlockParam::down_weight);
    ops::grouped_swiglu_backward(pass.stream, {.dy = dy.values,
                                               .weight = weight.values,
                                               .starts = stash[BlockSlot::starts],
                                               .gate_up = stash[BlockSlot::up],
                                               .row_weight = stash[BlockSlot::row_weight],
                                               .dgate_up = dup,
                                               .dweight = dweight,
                                               .act = act,
                                               .rows = rows_.expected(),
                                               .scales = scales_of(pass, dy, weight.scale, false),
                                               .dact = dact,
                                               .amax = quantizer.amax(Quantized::dup)});
    if (act_t) {
      quantizer.quantize(Quantized::act, act, {},
                         quantizer.transposed(Quantized::act, act_t, grouped, moe().ffn),
                         end(pass));
    }
  }
  router_backward(pass, exchange_.give_back(pass, dweight.reshape({grouped, 1})));
}

void ExpertFeedForward::codes_weights(Pass& pass) const {
  Stash& stash = pass.stash;
  const Quantizer quantizer(pass);
  const spec::ScaleShape shape = pass.recipe.fp8->rows;
  const auto codes = [&](Quantized which, BlockSlot slot, int64_t width) {
    return quantizer.transposed(which, stash[slot], rows_.grouped, width);
  };
  const auto product = [&](const Codes& dy, const Codes& x, BlockParam weight) {
    ops::grouped_backward_weight(
        pass.stream, {.dy = dy.values,
                      .x = x.values,
                      .starts = stash[BlockSlot::starts],
                      .dweight = at(pass.grads, weight),
                      .adds = !pass.writes,
                      .rows = rows_.expected(),
                      .scales = {.a = dy.scale, .b = x.scale, .shape_a = shape, .shape_b = shape}});
  };
  product(codes(Quantized::dy, BlockSlot::dy_t, spec_.width),
          codes(Quantized::act, BlockSlot::act_t, moe().ffn), BlockParam::down_weight);
  product(codes(Quantized::dup, BlockSlot::dup_t, 2 * moe().ffn),
          codes(Quantized::h2, BlockSlot::h2_t, spec_.width), BlockParam::up_weight);
}

}  // namespace trireme::nn
