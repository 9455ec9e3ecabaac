// SPDX-License-Identifier: Apache-2.0
#include "nn/embedding.h"

#include "kernels/ops.h"

namespace trireme::nn {
namespace {

constexpr auto tokens = static_cast<size_t>(spec::EmbeddingParam::tokens);
constexpr auto positions = static_cast<size_t>(spec::EmbeddingParam::positions);

}  // namespace

void Embedding::forward(Pass& pass, int /*phase*/) const {
  kernels::ops::embedding_forward(pass.stream, {.tokens = pass.tokens,
                                                .positions = pass.positions,
                                                .table = pass.params[tokens],
                                                .position_table = pass.params[positions],
                                                .y = pass.y});
}

void Embedding::backward_input(Pass& /*pass*/, int /*phase*/) const {}

void Embedding::backward_weight(Pass& pass) const {
  const device::Arena::Mark mark(pass.scratch);
  const base::TensorSpec workspace =
      spec::embedding_workspace(backend_, pass.dy.rows(), pass.dy.cols());
  kernels::ops::embedding_backward(
      pass.stream,
      {.tokens = pass.tokens,
       .positions = pass.positions,
       .dy = pass.dy,
       .dtable = pass.grads[tokens],
       .dposition_table = pass.grads[positions],
       .workspace = workspace.shape.ndim() == 0 ? Tensor{} : pass.scratch.take(workspace)});
}

}  // namespace trireme::nn
