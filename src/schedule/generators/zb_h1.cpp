// SPDX-License-Identifier: Apache-2.0
// ZB-H1 (Qi et al., 2024): 1F1B whose weight gradients are delayed, on rank r by r micro-batches,
// so that input gradients go up the pipeline without them and the rest fills the end of the step.
// Every rank has as many micro-batches in flight as the first rank of 1F1B: `ranks`.
#include "schedule/generators/zero_bubble.h"

namespace trireme::schedule {

Schedule zb_h1(int ranks, int microbatches) {
  return zero_bubble(ranks, microbatches,
                     [&](int rank) { return Lead{.ahead = ranks - 1 - rank, .behind = rank}; });
}

}  // namespace trireme::schedule
