// SPDX-License-Identifier: Apache-2.0
// ExpertExchange: rows on their way from tokens to experts and back. On one rank along ep and etp
// that is a gather. With several, rows travel in blocks of a static size, and only the counts of a
// block tell how many of its rows are used (spec/experts/expert_rows.h).
#pragma once

#include "nn/boundaries.h"
#include "nn/layer.h"
#include "spec/experts/expert_rows.h"

namespace trireme::nn {

class ExpertExchange {
 public:
  ExpertExchange(const spec::ExpertRows& rows, const ExpertBoundary& ranks)
      : rows_(rows), ranks_(ranks) {}

  // Gives every pair of the slot `choice` a row: fills the slots place, pair, starts and, with
  // several ranks, arranged and source. `counts` [E] i32 receives the rows of each expert, `stats`
  // (optional) the drops, `fill` (optional) the rows of the fullest block.
  void route(Pass&, Tensor counts, Tensor stats, Tensor fill) const;

  // ---- values of rows, [n, 1], at once
  // rows[r] = x[pair of the row], for all experts of this rank: [pairs, 1] to [grouped, 1]. Rows
  // without a pair become zero.
  void dispatch(Pass&, ConstTensor x, Tensor rows) const;
  // Returns the values of this rank's pairs, to be read by the slot `place`: `rows` [grouped, 1]
  // itself or, with several ranks, a tensor in scratch.
  Tensor give_back(Pass&, Tensor rows) const;

  // ---- rows of the stream, in phases. On one rank send() and answer() do nothing.
  // Sends the rows of x [tokens, D] to their experts.
  void send(Pass&, ConstTensor x) const;
  // rows[r] = x[token of the row], for all experts of this rank. Rows without a pair become zero.
  void receive(Pass&, ConstTensor x, Tensor rows) const;
  // Sends results back.
  void answer(Pass&, Tensor rows) const;
  // Returns the results of this rank's pairs, to be read by the slot `place`. `rows`: as in
  // answer(); not read with several ranks.
  Tensor returned(Pass&, Tensor rows) const;

  bool is_local() const { return rows_.is_local(); }

 private:
  void gather_local(Pass&, ConstTensor x, int64_t divisor, Tensor rows) const;

  spec::ExpertRows rows_;
  ExpertBoundary ranks_;
};

}  // namespace trireme::nn
