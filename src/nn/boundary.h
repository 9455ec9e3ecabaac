// SPDX-License-Identifier: Apache-2.0
// Boundary: the communication along tp around the GEMMs of a layer. Inside them a rank has all rows
// of the stream and its part of the columns. Between layers it has all rows as well (tensor
// parallel) or its part of them (sequence parallel). A layer calls its boundary and does not depend
// on which of the three cases applies.
//
//                                      one rank   tensor parallel   sequence parallel
//   gather_rows (rows -> all rows)     -          -                 all-gather
//   sum (partial sums -> rows)         -          all-reduce        reduce-scatter
//
// Each is the gradient of the other: rows gathered before a column-parallel GEMM have a gradient
// that is a sum over ranks, and a sum after a row-parallel GEMM has a gradient that is gathered.
#pragma once

#include "comm/communicator.h"
#include "nn/linear.h"

namespace trireme::nn {

class Boundary {
 public:
  Boundary() = default;  // one rank
  // `group`: the ranks along tp; null for one. Not owned.
  Boundary(comm::Communicator* group, bool splits_rows)
      : group_(group), splits_rows_(group != nullptr && splits_rows) {}

  int ranks() const { return group_ == nullptr ? 1 : group_->size(); }
  int rank() const { return group_ == nullptr ? 0 : group_->rank(); }
  // Sequence parallelism: does a rank have a part of the rows between layers?
  bool splits_rows() const { return splits_rows_; }
  // Returns `tensor` on the first rank and an empty one on the others, for terms that a sum over
  // ranks must contain once.
  ConstTensor once(ConstTensor tensor) const { return rank() == 0 ? tensor : ConstTensor{}; }

  // Returns all rows of a tensor of which each rank has `part`: `part` itself if it has all rows,
  // otherwise a gathered tensor in scratch.
  Tensor gather_rows(Pass&, Tensor part) const;
  // The same, gathered into `slot`, which outlives the phase and is empty if `part` has all rows.
  Tensor gather_rows(Pass&, Tensor part, Tensor slot) const;
  // Returns the result of an earlier gather_rows() into `slot`.
  Tensor gathered_rows(Tensor part, Tensor slot) const { return splits_rows_ ? slot : part; }

  // Returns the tensor for a partial sum of `rows` rows, which sum() reduces into `out`: `out`
  // itself, or scratch.
  Tensor partial(Pass&, Tensor out, int64_t rows) const;
  // out = this rank's rows of the sum over ranks. REQUIRES: partial() returned `partial`.
  void sum(Pass&, Tensor partial, Tensor out) const;

  // Row-parallel GEMM: y = sum over ranks of x w^T, + bias + residual.
  void linear_forward(Pass&, const LinearForward&) const;
  // Input gradient of a column-parallel GEMM: dx = sum over ranks of dy w.
  void linear_backward_input(Pass&, const LinearBackwardInput&) const;

  // all = the `part` of every rank, one after the other.
  void gather(Pass&, Tensor all, ConstTensor part) const;

 private:
  comm::Communicator* group_ = nullptr;
  bool splits_rows_ = false;
};

}  // namespace trireme::nn
