// SPDX-License-Identifier: Apache-2.0
// Boundary: what crosses ranks along tp around the products of a layer. Inside them a rank has all
// rows of the stream and its part of the columns; between layers all rows too (tensor parallel), or
// its part of them (sequence parallel). On one rank nothing crosses. A layer asks its boundary and
// does not know which of the three it is in.
//
//                                   one rank   tensor parallel    sequence parallel
//   whole (rows -> all rows)        -          -                  all-gather
//   sum (partial sums -> rows)      -          all-reduce         reduce-scatter
//
// Each is the gradient of the other: what is whole before a product cut by columns has a gradient
// that is a sum, and what is a sum after a product cut by rows has one that is whole.
#pragma once

#include "comm/communicator.h"
#include "nn/linear.h"

namespace trireme::nn {

class Boundary {
 public:
  Boundary() = default;  // one rank
  // `group`: the ranks along tp; null for one. Not owned.
  Boundary(comm::Communicator* group, bool parts_rows)
      : group_(group), parts_rows_(group != nullptr && parts_rows) {}

  int ranks() const { return group_ == nullptr ? 1 : group_->size(); }
  int rank() const { return group_ == nullptr ? 0 : group_->rank(); }
  // Has a rank a part of the rows between layers?
  bool parts_rows() const { return parts_rows_; }
  // What is added once before a sum over ranks, the first one adds.
  ConstTensor once(ConstTensor tensor) const { return rank() == 0 ? tensor : ConstTensor{}; }

  // All rows of what each rank has its part of: `part` itself, or in scratch.
  Tensor whole(Pass&, Tensor part) const;
  // The same in `slot`, which outlives the phase; where `part` is whole the slot is empty.
  Tensor whole(Pass&, Tensor part, Tensor slot) const;
  Tensor kept_whole(Tensor part, Tensor slot) const { return parts_rows_ ? slot : part; }

  // Where to put a partial sum of `rows` rows that is to become `out`: `out` itself, or scratch.
  Tensor partial(Pass&, Tensor out, int64_t rows) const;
  // out = this rank's rows of the sum over ranks. `partial` is from the call above.
  void sum(Pass&, Tensor partial, Tensor out) const;

  // A product cut by rows of the weight's input: y = sum over ranks of x w^T, + bias + residual.
  void linear_forward(Pass&, const LinearForward&) const;
  // Of a product cut by its columns: dx = sum over ranks of dy w.
  void linear_backward_input(Pass&, const LinearBackwardInput&) const;

  // Every rank's `part` one after the other in `all`.
  void gather(Pass&, Tensor all, ConstTensor part) const;

 private:
  comm::Communicator* group_ = nullptr;
  bool parts_rows_ = false;
};

}  // namespace trireme::nn
