// SPDX-License-Identifier: Apache-2.0
#include "nn/head.h"

#include <algorithm>

#include "kernels/ops.h"
#include "nn/linear.h"

namespace trireme::nn {
namespace {

using spec::HeadParam;
using spec::HeadSlot;

// Copies the rows that the sink asks for out of a chunk that starts at row `begin`.
void keep_logits(const Pass& pass, const Tensor& chunk, int64_t begin) {
  const Tensor& to = pass.sink.logits;
  const int64_t first = std::max(begin, pass.sink.first_logits_row);
  const int64_t last = std::min(begin + chunk.rows(), pass.sink.first_logits_row + to.rows());
  if (first >= last) return;
  kernels::ops::copy(pass.stream,
                     {.x = chunk.slice_rows(first - begin, last - first),
                      .d = to.slice_rows(first - pass.sink.first_logits_row, last - first)});
}

Tensor at(std::span<const Tensor> tensors, HeadParam param) {
  return tensors[static_cast<size_t>(param)];
}

}  // namespace

void Head::forward(Pass& pass, int /*phase*/) const {
  const int64_t tokens = pass.x.rows();
  const int64_t step = std::min(tokens, chunk_rows_);
  for (int64_t begin = 0; begin < tokens; begin += step) {
    chunk(pass, begin, std::min(step, tokens - begin));
  }
}

void Head::chunk(Pass& pass, int64_t begin, int64_t rows) const {
  namespace ops = kernels::ops;
  const device::Arena::Mark mark(pass.scratch);
  const base::DType act = pass.x.dtype;
  const Tensor h = pass.scratch.take({{rows, spec_.width}, act});
  const Tensor logits = pass.scratch.take(spec::logits_spec(backend_, rows, spec_.vocab, act))
                            .slice_cols(0, spec_.vocab);
  const Tensor ce_stats = pass.scratch.take({{rows, 3}, base::DType::f32});
  const ConstTensor labels = pass.labels.slice_rows(begin, rows);
  const Tensor weight = at(pass.params, HeadParam::weight);

  ops::norm_forward(pass.stream, {.kind = spec_.norm,
                                  .eps = spec_.norm_eps,
                                  .x = pass.x.slice_rows(begin, rows),
                                  .weight = at(pass.params, HeadParam::norm_weight),
                                  .bias = at(pass.params, HeadParam::norm_bias),
                                  .y = h,
                                  .stats = pass.stash[HeadSlot::stats].slice_rows(begin, rows)});
  linear_forward(pass, {.x = h, .weight = weight, .y = logits});
  if (pass.sink.logits) keep_logits(pass, logits, begin);
  ops::cross_entropy(
      pass.stream,
      {.logits = logits,
       .labels = labels,
       .stats = ce_stats,
       .sums = pass.sink.sums,
       .token_losses =
           pass.sink.token_losses ? pass.sink.token_losses.slice_rows(begin, rows) : Tensor{},
       .loss_only = pass.evaluating});
  if (pass.evaluating) return;
  linear_backward_input(
      pass,
      {.dy = logits, .weight = weight, .dx = pass.stash[HeadSlot::dh].slice_rows(begin, rows)});
  linear_backward_weight(pass,
                         {.dy = logits, .x = h, .weight_grad = at(pass.grads, HeadParam::weight)});
}

void Head::backward_input(Pass& pass, int /*phase*/) const {
  const device::Arena::Mark mark(pass.scratch);
  const int64_t tokens = pass.x.rows();
  kernels::ops::norm_backward(
      pass.stream, {.kind = spec_.norm,
                    .dy = pass.stash[HeadSlot::dh],
                    .x = pass.x,
                    .stats = pass.stash[HeadSlot::stats],
                    .weight = at(pass.params, HeadParam::norm_weight),
                    .dx = pass.dx,
                    .dweight = at(pass.grads, HeadParam::norm_weight),
                    .dbias = at(pass.grads, HeadParam::norm_bias),
                    .partials = pass.scratch.take(
                        {{spec::norm_partials(tokens), spec_.width * norm_stats(spec_.norm)},
                         base::DType::f32})});
}

void Head::backward_weight(Pass& /*pass*/) const {}

}  // namespace trireme::nn
