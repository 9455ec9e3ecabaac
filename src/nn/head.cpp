// SPDX-License-Identifier: Apache-2.0
#include "nn/head.h"

#include <algorithm>

#include "kernels/ops.h"
#include "nn/linear.h"
#include "nn/vocabulary.h"

namespace trireme::nn {
namespace {

using spec::HeadParam;
using spec::HeadSlot;

// Copies the rows that the sink requests out of a chunk that starts at row `begin`.
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

Head::Head(const spec::HeadSpec& spec, const spec::LocalShape& shape, const spec::Backend& backend,
           const Boundary& tp)
    : spec_(spec),
      padded_(spec::padded_vocab(spec.vocab, shape.mesh)),
      tokens_(shape.tokens),
      chunk_rows_(std::min(shape.tokens, shape.head_chunk_rows)),
      backend_(backend),
      tp_(tp) {
  spec::Coord coord;
  coord[spec::Axis::tp] = tp.rank();
  columns_ = spec::local_vocab(spec.vocab, shape.mesh, coord);
}

void Head::forward(Pass& pass, int /*phase*/) const {
  // Rows that are gathered and summed together: those of a chunk, or all under sequence
  // parallelism.
  const int64_t group_rows = tp_.splits_rows() ? tokens_ : chunk_rows_;
  const int64_t parts = tokens_ / pass.x.rows();
  for (int64_t begin = 0; begin < tokens_; begin += group_rows) {
    const device::Arena::Mark mark(pass.scratch);
    const int64_t rows = std::min(group_rows, tokens_ - begin);
    const Tensor h = normed(pass, begin / parts, rows / parts);
    Tensor out, dh;
    if (!pass.evaluating) {
      out = pass.stash[HeadSlot::dh].slice_rows(begin / parts, rows / parts);
      dh = tp_.partial(pass, out, rows);
    }
    for (int64_t at = 0; at < rows; at += chunk_rows_) {
      const int64_t n = std::min(chunk_rows_, rows - at);
      chunk(pass, begin + at, h.slice_rows(at, n), dh ? dh.slice_rows(at, n) : Tensor{});
    }
    if (!pass.evaluating) tp_.sum(pass, dh, out);
  }
}

Tensor Head::normed(Pass& pass, int64_t begin, int64_t rows) const {
  const Tensor h = pass.scratch.take({{rows, spec_.width}, pass.x.dtype});
  kernels::ops::norm_forward(pass.stream,
                             {.kind = spec_.norm,
                              .eps = spec_.norm_eps,
                              .x = pass.x.slice_rows(begin, rows),
                              .weight = at(pass.params, HeadParam::norm_weight),
                              .bias = at(pass.params, HeadParam::norm_bias),
                              .y = h,
                              .stats = pass.stash[HeadSlot::stats].slice_rows(begin, rows)});
  return tp_.gather_rows(pass, h);
}

void Head::chunk(Pass& pass, int64_t begin, Tensor h, Tensor dh) const {
  const device::Arena::Mark mark(pass.scratch);
  const int64_t rows = h.rows();
  // The weight's padding is zero, and so are the logits of padded columns. The loss does not read
  // or write them, so they are also zero as gradients.
  const Tensor all =
      pass.scratch.take(spec::logits_spec(backend_, rows, padded_, h.dtype)).slice_cols(0, padded_);
  const Tensor logits = all.slice_cols(0, columns_.end - columns_.begin);
  const Tensor stats = pass.scratch.take({{rows, 3}, base::DType::f32});
  const Tensor weight = at(pass.params, HeadParam::weight);

  linear_forward(pass, {.x = h, .weight = weight, .y = all});
  if (pass.sink.logits) keep_logits(pass, logits, begin);
  cross_entropy(
      pass, tp_,
      {.logits = logits,
       .labels = pass.labels.slice_rows(begin, rows),
       .stats = stats,
       .sums = pass.sink.sums,
       .token_losses = pass.token_losses ? pass.token_losses.slice_rows(begin, rows) : Tensor{},
       .loss_only = pass.evaluating,
       .scale = pass.sink.loss_factor},
      columns_.begin);
  if (pass.evaluating) return;
  linear_backward_input(pass, {.dy = all, .weight = weight, .dx = dh});
  linear_backward_weight(pass, {.dy = all,
                                .x = h,
                                .weight_grad = at(pass.grads, HeadParam::weight),
                                .writes = pass.writes && begin == 0});
}

void Head::backward_input(Pass& pass, int /*phase*/) const {
  const device::Arena::Mark mark(pass.scratch);
  const int64_t rows = pass.x.rows();
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
                        spec::norm_backward_partials(spec_.norm, rows, spec_.width, false))});
}

void Head::backward_weight(Pass& /*pass*/) const {}

}  // namespace trireme::nn
