// SPDX-License-Identifier: Apache-2.0
#include "nn/vocabulary.h"

#include "kernels/ops.h"

namespace trireme::nn {

void cross_entropy(Pass& pass, const Boundary& tp, const kernels::CrossEntropyArgs& a,
                   int64_t first_column) {
  namespace ops = kernels::ops;
  if (tp.ranks() == 1) {
    ops::cross_entropy(pass.stream, a);
    return;
  }
  const device::Arena::Mark mark(pass.scratch);
  const int64_t rows = a.logits.rows();
  const Tensor all = pass.scratch.take({{tp.ranks(), rows, 3}, base::DType::f32});
  ops::cross_entropy_stats(
      pass.stream,
      {.logits = a.logits, .labels = a.labels, .stats = a.stats, .first_column = first_column});
  tp.gather(pass, all, a.stats);
  ops::cross_entropy_merge(pass.stream,
                           {.parts = all.reshape({tp.ranks() * rows, 3}), .stats = a.stats});
  ops::cross_entropy_grad(pass.stream, {.logits = a.logits,
                                        .stats = a.stats,
                                        .labels = a.labels,
                                        .sums = a.sums,
                                        .token_losses = a.token_losses,
                                        .first_column = first_column,
                                        .loss_only = a.loss_only,
                                        .scale = a.scale});
}

}  // namespace trireme::nn
