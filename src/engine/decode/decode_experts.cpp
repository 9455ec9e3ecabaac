// SPDX-License-Identifier: Apache-2.0
#include "engine/decode/decode_experts.h"

#include "base/check.h"
#include "engine/decode/decode_product.h"
#include "kernels/ops.h"
#include "spec/facts/facts.h"

namespace trireme::engine {
namespace {

namespace ops = kernels::ops;
using device::Tensor;
using spec::BlockParam;

Tensor take(device::Arena& arena, const base::TensorSpec& spec) {
  return spec.shape.ndim() == 0 ? Tensor{} : arena.take(spec);
}

}  // namespace

DecodeExperts::DecodeExperts(device::Arena& arena, const spec::DecodeExpertTensors& t,
                             const spec::Backend& backend)
    : backend_(backend),
      logits_(take(arena, t.logits)),
      choice_(take(arena, t.choice)),
      weights_(take(arena, t.weights)),
      place_(take(arena, t.place)),
      pair_(take(arena, t.pair)),
      counts_(take(arena, t.counts)),
      starts_(take(arena, t.starts)),
      row_weight_(take(arena, t.row_weight)),
      rows_(take(arena, t.rows)),
      up_(take(arena, t.up)),
      act_(take(arena, t.act)) {}

void DecodeExperts::run(device::Stream& stream, const spec::MoeSpec& moe, const Batch& batch) {
  const int64_t tokens = batch.h.rows();
  TRIREME_CHECK(logits_ && tokens <= logits_.rows(), "{} rows", tokens);
  const auto param = [&batch](BlockParam p) { return batch.params[static_cast<size_t>(p)]; };
  const spec::ExpertRows r = last_ = spec::decode_expert_rows(moe, tokens, backend_);
  const Tensor logits = logits_.slice_rows(0, tokens), choice = choice_.slice_rows(0, tokens),
               weights = weights_.slice_rows(0, tokens), place = place_.slice_rows(0, tokens),
               pair = pair_.slice_rows(0, r.grouped), end = starts_.slice_rows(r.groups, 1),
               row_weight = row_weight_.slice_rows(0, r.grouped),
               rows = rows_.slice_rows(0, r.grouped), act = act_.slice_rows(0, r.grouped);
  multiply(stream, {.x = batch.h, .weight = param(BlockParam::router_weight), .y = logits},
           batch.is_prompt);
  ops::router_forward(stream, {.rule = moe.router,
                               .logits = logits,
                               .bias = batch.bias,
                               .choice = choice,
                               .weights = weights});
  ops::route_rows(stream, {.choice = choice,
                           .experts = r.experts,
                           .tile = r.tile,
                           .place = place,
                           .pair = pair,
                           .counts = counts_,
                           .starts = starts_});
  ops::gather_pairs(stream, {.x = weights.reshape({r.pairs(), 1}),
                             .source = pair,
                             .end = end,
                             .d = row_weight.reshape({r.grouped, 1})});
  ops::gather_pairs(stream,
                    {.x = batch.h, .source = pair, .divisor = r.chosen, .end = end, .d = rows});
  ops::grouped_swiglu_forward(stream, {.x = rows,
                                       .weight = param(BlockParam::up_weight),
                                       .starts = starts_,
                                       .row_weight = row_weight,
                                       .gate_up = up_.slice_rows(0, r.grouped),
                                       .act = act,
                                       .rows = r.expected()});
  ops::grouped_forward(stream, {.x = act,
                                .weight = param(BlockParam::down_weight),
                                .starts = starts_,
                                .y = rows,
                                .rows = r.expected()});
}

void DecodeExperts::add(device::Stream& stream, device::ConstTensor shared, Tensor x) {
  ops::sum_pairs(stream, {.rows = rows_.slice_rows(0, last_.grouped),
                          .place = place_.slice_rows(0, last_.tokens),
                          .residual = x,
                          .other = shared,
                          .y = x});
}

}  // namespace trireme::engine
