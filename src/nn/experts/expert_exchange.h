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
  // rows[r] = x[token of the row], for all experts of this rank: [T / divisor, n] to [grouped, n].
  // Rows without a pair become zero.
  void dispatch(Pass&, ConstTensor x, int64_t divisor, Tensor rows) const;
  // Returns the results of all rows of this rank's pairs, to be read by the slot `place`: `rows`
  // [grouped, n] itself or, with several ranks, a tensor in scratch.
  Tensor give_back(Pass&, Tensor rows) const;

 private:
  spec::ExpertRows rows_;
  ExpertBoundary ranks_;
};

}  // namespace trireme::nn
