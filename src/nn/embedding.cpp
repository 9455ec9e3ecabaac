// SPDX-License-Identifier: Apache-2.0
#include "nn/embedding.h"

#include "kernels/ops.h"

namespace trireme::nn {
namespace {

constexpr auto tokens = static_cast<size_t>(spec::EmbeddingParam::tokens);
constexpr auto positions = static_cast<size_t>(spec::EmbeddingParam::positions);

}  // namespace

Embedding::Embedding(const spec::EmbeddingSpec& spec, const spec::LocalShape& shape,
                     const spec::Backend& backend, const Boundary& tp)
    : tokens_(shape.tokens), backend_(backend), tp_(tp) {
  spec::Coord coord;
  coord[spec::Axis::tp] = tp.rank();
  rows_ = spec::local_vocab(spec.vocab, shape.mesh, coord);
}

void Embedding::forward(Pass& pass, int /*phase*/) const {
  const device::Arena::Mark mark(pass.scratch);
  const Tensor y = tp_.partial(pass, pass.y, tokens_);
  kernels::ops::embedding_forward(
      pass.stream, {.tokens = pass.tokens,
                    .positions = pass.positions,
                    .table = pass.params[tokens].slice_rows(0, rows_.end - rows_.begin),
                    .position_table = tp_.once(pass.params[positions]),
                    .y = y,
                    .first_row = rows_.begin});
  tp_.sum(pass, y, pass.y);
}

void Embedding::backward_input(Pass& /*pass*/, int /*phase*/) const {}

void Embedding::backward_weight(Pass& pass) const {
  const device::Arena::Mark mark(pass.scratch);
  const Tensor dy = tp_.gather_rows(pass, pass.dy);
  const base::TensorSpec workspace = spec::embedding_workspace(backend_, dy.rows(), dy.cols());
  kernels::ops::embedding_backward(
      pass.stream,
      {.tokens = pass.tokens,
       .positions = pass.positions,
       .dy = dy,
       .dtable = pass.grads[tokens].slice_rows(0, rows_.end - rows_.begin),
       .dposition_table = pass.grads[positions],
       .first_row = rows_.begin,
       .workspace = workspace.shape.ndim() == 0 ? Tensor{} : pass.scratch.take(workspace)});
}

}  // namespace trireme::nn
