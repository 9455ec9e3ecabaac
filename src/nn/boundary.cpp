// SPDX-License-Identifier: Apache-2.0
#include "nn/boundary.h"

#include "base/check.h"
#include "kernels/ops.h"

namespace trireme::nn {

Tensor Boundary::gather_rows(Pass& pass, Tensor part) const {
  if (!splits_rows_) return part;
  return gather_rows(pass, part,
                     pass.scratch.take({{part.rows() * ranks(), part.cols()}, part.dtype}));
}

Tensor Boundary::gather_rows(Pass& pass, Tensor part, Tensor slot) const {
  if (!splits_rows_) return part;
  group_->all_gather(pass.stream, slot, part);
  return slot;
}

Tensor Boundary::partial(Pass& pass, Tensor out, int64_t rows) const {
  return splits_rows_ ? pass.scratch.take({{rows, out.cols()}, out.dtype}) : out;
}

void Boundary::sum(Pass& pass, Tensor partial, Tensor out) const {
  if (splits_rows_) {
    group_->reduce_scatter(pass.stream, out, partial);
  } else if (group_ != nullptr) {
    group_->all_reduce(pass.stream, out, comm::Reduce::sum);
  }
}

void Boundary::linear_forward(Pass& pass, const LinearForward& a) const {
  if (group_ == nullptr) {
    nn::linear_forward(pass, a);
    return;
  }
  const auto* terms = std::get_if<kernels::AddTerms>(&a.epilogue);
  TRIREME_CHECK(terms != nullptr, "an activation of a partial sum");
  const device::Arena::Mark mark(pass.scratch);
  const int64_t rows = a.x.rows();
  const Tensor sums = partial(pass, a.y, rows);
  LinearForward own = a;
  own.epilogue = kernels::AddTerms{.bias = once(terms->bias)};
  own.y = sums;
  nn::linear_forward(pass, own);
  // Each rank adds the residual to its part of the rows, which is empty if there are fewer rows
  // than ranks.
  const int64_t begin = rank() * rows / ranks(), count = (rank() + 1) * rows / ranks() - begin;
  if (terms->residual && count > 0) {
    const int64_t first = splits_rows_ ? 0 : begin;
    kernels::ops::accumulate(pass.stream, {.x = terms->residual.slice_rows(first, count),
                                           .d = sums.slice_rows(begin, count)});
  }
  sum(pass, sums, a.y);
}

void Boundary::linear_backward_input(Pass& pass, const LinearBackwardInput& a) const {
  TRIREME_CHECK(std::holds_alternative<kernels::AddTerms>(a.epilogue),
                "the gradient of an activation of a partial sum");
  const device::Arena::Mark mark(pass.scratch);
  LinearBackwardInput own = a;
  own.dx = partial(pass, a.dx, a.dy.rows());
  nn::linear_backward_input(pass, own);
  sum(pass, own.dx, a.dx);
}

void Boundary::gather(Pass& pass, Tensor all, ConstTensor part) const {
  TRIREME_CHECK(group_ != nullptr, "gather along tp on one rank");
  group_->all_gather(pass.stream, all, part);
}

}  // namespace trireme::nn
