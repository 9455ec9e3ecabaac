// SPDX-License-Identifier: Apache-2.0
#include "nn/experts/expert_feed_forward.h"

#include "base/check.h"
#include "kernels/ops.h"
#include "nn/linear.h"
#include "spec/experts/router_state.h"

namespace trireme::nn {
namespace {

namespace ops = kernels::ops;
using base::DType;
using spec::BlockParam;
using spec::BlockSlot;

}  // namespace

ExpertFeedForward::ExpertFeedForward(const spec::BlockSpec& spec, const spec::LocalShape& shape,
                                     const spec::Backend& backend, const Boundaries& boundaries)
    : BlockPart(spec, shape, backend, boundaries.tp),
      rows_(spec::expert_rows(*spec.moe, shape, backend)),
      ranks_(boundaries.expert),
      exchange_(rows_, boundaries.expert) {}

Tensor ExpertFeedForward::state(const Pass& pass, const char* name) const {
  const int index = spec::router_state_index(moe(), name);
  return index < 0 || pass.state.empty() ? Tensor{} : pass.state[static_cast<size_t>(index)];
}

int64_t ExpertFeedForward::sequence_rows() const {
  return moe().balance.scope == spec::AuxScope::sequence ? shape_.tokens / shape_.sequences
                                                         : shape_.tokens;
}

void ExpertFeedForward::sum_load(Pass& pass, Tensor stats) const {
  const Tensor load = pass.stash[BlockSlot::load];
  const bool is_global = moe().balance.scope == spec::AuxScope::global;
  if (is_global) {
    const Tensor counts =
        stats.slice_rows(spec::RouterStats{rows_.experts}.counts(), rows_.experts);
    ops::copy(pass.stream, {.x = counts, .d = load.reshape({rows_.experts})});
  }
  comm::Communicator* group = is_global ? ranks_.step : ranks_.tokens;
  if (group != nullptr) group->all_reduce(pass.stream, load, comm::Reduce::sum);
}

void ExpertFeedForward::route(Pass& pass) const {
  Stash& stash = pass.stash;
  const device::Arena::Mark mark(pass.scratch);
  const Tensor weights = pass.scratch.take({{rows_.tokens, rows_.chosen}, DType::f32});
  const Tensor counts = pass.scratch.take({{rows_.experts}, DType::i32});
  const bool decides = pass.fills(BlockSlot::choice);
  const Tensor stats = decides ? state(pass, spec::router_stats_state) : Tensor{};
  const Tensor load = stats && !pass.evaluating ? stash[BlockSlot::load] : Tensor{};
  const bool is_global = moe().balance.scope == spec::AuxScope::global;
  ops::router_forward(pass.stream, {.rule = moe().router,
                                    .logits = stash[BlockSlot::logits],
                                    .bias = state(pass, spec::router_bias_state),
                                    .choice = stash[BlockSlot::choice],
                                    .is_chosen = !decides,
                                    .weights = weights,
                                    .stats = stats,
                                    .load = is_global ? Tensor{} : load,
                                    .first_row = first_row(),
                                    .sequence_rows = sequence_rows()});
  if (load) sum_load(pass, stats);
  exchange_.route(pass, counts, stats, stats ? state(pass, spec::router_fill_state) : Tensor{});
  exchange_.dispatch(pass, weights.reshape({rows_.pairs(), 1}),
                     stash[BlockSlot::row_weight].reshape({rows_.grouped, 1}));
}

void ExpertFeedForward::shared_up(Pass& pass) const {
  Stash& stash = pass.stash;
  const bool has_act = pass.fills(BlockSlot::shared_act);
  if (pass.fills(BlockSlot::shared_up)) {
    const device::Arena::Mark mark(pass.scratch);
    linear_forward(pass, {.x = tp_.gather_rows(pass, stash[BlockSlot::h2]),
                          .weight = at(pass.params, BlockParam::shared_up_weight),
                          .epilogue = kernels::AddTerms{},
                          .y = stash[BlockSlot::shared_up],
                          .swiglu = has_act ? stash[BlockSlot::shared_act] : Tensor{}});
  } else if (has_act) {
    ops::swiglu_forward(
        pass.stream, {.gate_up = stash[BlockSlot::shared_up], .y = stash[BlockSlot::shared_act]});
  }
}

Tensor ExpertFeedForward::shared_result(Pass& pass) const {
  const Tensor result = pass.scratch.take({{rows_.tokens, spec_.width}, pass.y.dtype});
  tp_.linear_forward(pass, {.x = pass.stash[BlockSlot::shared_act],
                            .weight = at(pass.params, BlockParam::shared_down_weight),
                            .epilogue = kernels::AddTerms{},
                            .y = result});
  return result;
}

void ExpertFeedForward::forward(Pass& pass, int phase) const {
  const device::Range range(pass.stream, "experts");
  const device::Arena::Mark mark(pass.scratch);
  if (exchange_.is_local()) {
    dispatch_forward(pass);
    combine_forward(pass, experts_forward(pass));
  } else if (phase == dispatch) {
    dispatch_forward(pass);
  } else if (phase == experts) {
    experts_forward(pass);
  } else {
    combine_forward(pass, {});
  }
}

void ExpertFeedForward::dispatch_forward(Pass& pass) const {
  Stash& stash = pass.stash;
  const bool is_8_bit = pass.recipe.fp8.has_value();
  if (pass.fills(BlockSlot::h2)) {
    // On one rank the largest magnitude of the rows is that of h2.
    const bool has_amax = is_8_bit && exchange_.is_local();
    ops::norm_forward(pass.stream,
                      {.kind = spec_.norm,
                       .eps = spec_.norm_eps,
                       .x = stash[BlockSlot::x2],
                       .weight = at(pass.params, BlockParam::norm2_weight),
                       .bias = at(pass.params, BlockParam::norm2_bias),
                       .y = stash[BlockSlot::h2],
                       .stats = stash[BlockSlot::stats2],
                       .amax = has_amax ? Quantizer(pass).amax(spec::Quantized::h2) : Tensor{}});
  }
  const Tensor h2 = stash[BlockSlot::h2];
  if (pass.fills(BlockSlot::logits)) {
    linear_forward(pass, {.x = h2,
                          .weight = at(pass.params, BlockParam::router_weight),
                          .epilogue = kernels::AddTerms{},
                          .y = stash[BlockSlot::logits]});
  }
  if (pass.fills(BlockSlot::place)) route(pass);
  if (pass.fills(is_8_bit ? BlockSlot::up : BlockSlot::x_rows)) exchange_.send(pass, h2);
}

Tensor ExpertFeedForward::experts_forward(Pass& pass) const {
  if (pass.recipe.fp8) return codes_forward(pass);
  Stash& stash = pass.stash;
  if (pass.fills(BlockSlot::x_rows)) {
    exchange_.receive(pass, stash[BlockSlot::h2], stash[BlockSlot::x_rows]);
  }
  if (pass.fills(BlockSlot::up)) {
    ops::grouped_swiglu_forward(pass.stream, {.x = stash[BlockSlot::x_rows],
                                              .weight = at(pass.params, BlockParam::up_weight),
                                              .starts = stash[BlockSlot::starts],
                                              .row_weight = stash[BlockSlot::row_weight],
                                              .gate_up = stash[BlockSlot::up],
                                              .act = stash[BlockSlot::act],
                                              .rows = rows_.expected()});
  } else if (pass.fills(BlockSlot::act)) {
    ops::grouped_swiglu(pass.stream, {.gate_up = stash[BlockSlot::up],
                                      .row_weight = stash[BlockSlot::row_weight],
                                      .end = end(pass),
                                      .act = stash[BlockSlot::act],
                                      .rows = rows_.expected()});
  }
  if (pass.recomputing) return {};
  const Tensor rows =
      pass.scratch.take({{rows_.grouped, spec_.width}, stash[BlockSlot::act].dtype});
  ops::grouped_forward(pass.stream, {.x = stash[BlockSlot::act],
                                     .weight = at(pass.params, BlockParam::down_weight),
                                     .starts = stash[BlockSlot::starts],
                                     .y = rows,
                                     .rows = rows_.expected()});
  exchange_.answer(pass, rows);
  return rows;
}

void ExpertFeedForward::combine_forward(Pass& pass, Tensor rows) const {
  Stash& stash = pass.stash;
  const bool has_shared = moe().shared_ffn > 0;
  if (has_shared) shared_up(pass);
  if (pass.recomputing) return;
  const Tensor of_shared = has_shared ? shared_result(pass) : Tensor{};
  ops::sum_pairs(pass.stream, {.rows = exchange_.returned(pass, rows),
                               .place = stash[BlockSlot::place],
                               .residual = stash[BlockSlot::x2],
                               .other = of_shared,
                               .y = pass.y});
}

void ExpertFeedForward::shared_backward(Pass& pass) const {
  Stash& stash = pass.stash;
  const Tensor dy = tp_.gather_rows(pass, pass.dy, stash[BlockSlot::dy_whole]);
  const device::Arena::Mark mark(pass.scratch);
  const Tensor dact = pass.scratch.take({{dy.rows(), moe().shared_ffn}, dy.dtype});
  linear_backward_input(pass, {.dy = dy,
                               .weight = at(pass.params, BlockParam::shared_down_weight),
                               .dx = dact,
                               .epilogue = kernels::AddTerms{},
                               .swiglu = {.gate_up = stash[BlockSlot::shared_up],
                                          .dy = dact,
                                          .dgate_up = stash[BlockSlot::shared_dup],
                                          .y = pass.recomputed_in_b(BlockSlot::shared_act)}});
}

Tensor ExpertFeedForward::shared_input_gradient(Pass& pass) const {
  const Tensor dh2 = pass.scratch.take({{rows_.tokens, spec_.width}, pass.dy.dtype});
  tp_.linear_backward_input(pass, {.dy = pass.stash[BlockSlot::shared_dup],
                                   .weight = at(pass.params, BlockParam::shared_up_weight),
                                   .dx = dh2,
                                   .epilogue = kernels::AddTerms{},
                                   .swiglu = {}});
  return dh2;
}

void ExpertFeedForward::router_backward(Pass& pass, ConstTensor row_grads) const {
  Stash& stash = pass.stash;
  const spec::BalanceSpec& balance = moe().balance;
  // Gradients are those of the summed loss: the terms are per token, and only tokens with a label
  // count, so that no cut of the batch changes their weight.
  const float aux = balance.aux * static_cast<float>(rows_.experts), z = 2 * balance.z;
  const bool has_terms = aux != 0 || z != 0;
  ops::router_backward(
      pass.stream,
      {.rule = moe().router,
       .logits = stash[BlockSlot::logits],
       .choice = stash[BlockSlot::choice],
       .place = stash[BlockSlot::place],
       .row_grads = row_grads.reshape({row_grads.elements()}),
       .load = aux != 0 ? stash[BlockSlot::load] : Tensor{},
       .labels = has_terms ? pass.labels.slice_rows(first_row(), rows_.tokens) : ConstTensor{},
       .first_row = first_row(),
       .sequence_rows = sequence_rows(),
       .aux_scale = aux,
       .z_scale = z,
       .scale = pass.sink.loss_factor,
       .dlogits = stash[BlockSlot::dlogits]});
}

void ExpertFeedForward::backward_input(Pass& pass, int phase) const {
  const device::Range range(pass.stream, "experts backward");
  const device::Arena::Mark mark(pass.scratch);
  if (exchange_.is_local()) {
    combine_backward(pass);
    dispatch_backward(pass, experts_backward(pass));
  } else if (phase == combine) {
    combine_backward(pass);
  } else if (phase == experts) {
    experts_backward(pass);
  } else {
    dispatch_backward(pass, {});
  }
}

void ExpertFeedForward::combine_backward(Pass& pass) const {
  exchange_.send(pass, pass.dy);
  if (moe().shared_ffn > 0) shared_backward(pass);
}

Tensor ExpertFeedForward::experts_backward(Pass& pass) const {
  if (pass.recipe.fp8) return codes_backward(pass);
  Stash& stash = pass.stash;
  exchange_.receive(pass, pass.dy, stash[BlockSlot::dy_rows]);
  const Tensor dweight = pass.scratch.take({{rows_.grouped}, DType::f32});
  ops::grouped_swiglu_backward(pass.stream, {.dy = stash[BlockSlot::dy_rows],
                                             .weight = at(pass.params, BlockParam::down_weight),
                                             .starts = stash[BlockSlot::starts],
                                             .gate_up = stash[BlockSlot::up],
                                             .row_weight = stash[BlockSlot::row_weight],
                                             .dgate_up = stash[BlockSlot::dup],
                                             .dweight = dweight,
                                             .act = pass.recomputed_in_b(BlockSlot::act),
                                             .rows = rows_.expected()});
  router_backward(pass, exchange_.give_back(pass, dweight.reshape({rows_.grouped, 1})));
  const Tensor drows = pass.scratch.take({{rows_.grouped, spec_.width}, pass.dy.dtype});
  ops::grouped_backward_input(pass.stream, {.dy = stash[BlockSlot::dup],
                                            .weight = at(pass.params, BlockParam::up_weight),
                                            .starts = stash[BlockSlot::starts],
                                            .dx = drows,
                                            .rows = rows_.expected()});
  exchange_.answer(pass, drows);
  return drows;
}

void ExpertFeedForward::dispatch_backward(Pass& pass, Tensor drows) const {
  Stash& stash = pass.stash;
  const Tensor of_shared = moe().shared_ffn > 0 ? shared_input_gradient(pass) : Tensor{};
  const base::TensorSpec stream{{rows_.tokens, spec_.width}, pass.dy.dtype};
  const Tensor of_router = pass.scratch.take(stream);
  linear_backward_input(pass, {.dy = stash[BlockSlot::dlogits],
                               .weight = at(pass.params, BlockParam::router_weight),
                               .dx = of_router,
                               .epilogue = kernels::AddTerms{},
                               .swiglu = {}});
  const Tensor dh2 = pass.scratch.take(stream);
  ops::sum_pairs(pass.stream, {.rows = exchange_.returned(pass, drows),
                               .place = stash[BlockSlot::place],
                               .residual = of_router,
                               .other = of_shared,
                               .y = dh2});
  norm_backward(pass, dh2);
  if (!pass.recipe.fp8) {
    if (const Tensor x_rows = pass.recomputed_in_b(BlockSlot::x_rows)) {
      exchange_.receive(pass, stash[BlockSlot::h2], x_rows);
    }
  } else if (const Tensor codes = pass.recomputed_in_b(BlockSlot::h2_t)) {
    // On one rank only. Nothing reads the rows of dh2 any more.
    exchange_.receive(pass, stash[BlockSlot::h2], drows);
    const Quantizer quantizer(pass);
    quantizer.quantize(spec::Quantized::h2, drows, {},
                       quantizer.transposed(spec::Quantized::h2, codes, rows_.grouped, spec_.width),
                       end(pass));
  }
}

void ExpertFeedForward::norm_backward(Pass& pass, Tensor dh2) const {
  Stash& stash = pass.stash;
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
                      .bias = at(pass.params, BlockParam::norm2_bias),
                      .y = pass.recomputed_in_b(BlockSlot::h2),
                      .partials = pass.scratch.take(norm_partials(rows_.tokens, Tensor{}))});
}

void ExpertFeedForward::backward_weight(Pass& pass) const {
  Stash& stash = pass.stash;
  const auto grouped_product = [&](BlockSlot dy, BlockSlot x, BlockParam weight) {
    ops::grouped_backward_weight(pass.stream, {.dy = stash[dy],
                                               .x = stash[x],
                                               .starts = stash[BlockSlot::starts],
                                               .dweight = at(pass.grads, weight),
                                               .adds = !pass.writes,
                                               .rows = rows_.expected()});
  };
  if (pass.recipe.fp8) {
    codes_weights(pass);
  } else {
    grouped_product(BlockSlot::dy_rows, BlockSlot::act, BlockParam::down_weight);
    grouped_product(BlockSlot::dup, BlockSlot::x_rows, BlockParam::up_weight);
  }
  const auto product = [&](ConstTensor dy, ConstTensor x, BlockParam weight) {
    linear_backward_weight(pass, {.dy = dy,
                                  .x = x,
                                  .weight_grad = at(pass.grads, weight),
                                  .writes = pass.writes,
                                  .bias_grad = {}});
  };
  product(stash[BlockSlot::dlogits], stash[BlockSlot::h2], BlockParam::router_weight);
  if (moe().shared_ffn == 0) return;
  product(tp_.gathered_rows(pass.dy, stash[BlockSlot::dy_whole]), stash[BlockSlot::shared_act],
          BlockParam::shared_down_weight);
  const device::Arena::Mark mark(pass.scratch);
  product(stash[BlockSlot::shared_dup], tp_.gather_rows(pass, stash[BlockSlot::h2]),
          BlockParam::shared_up_weight);
}

}  // namespace trireme::nn
