// SPDX-License-Identifier: Apache-2.0
// ZB-H1 (Qi et al., 2024): 1F1B whose weight gradients wait, on rank r for r more micro-batches, so
// that input gradients go up the pipe without them and what is left fills the end of the step.
// Every rank keeps as many micro-batches as the first rank of 1F1B: `ranks`.
#include "schedule/generators/zero_bubble.h"

namespace trireme::schedule {

Schedule zb_h1(int ranks, int microbatches) {
  return zero_bubble(ranks, microbatches,
                     [&](int rank) { return Lead{.ahead = ranks - 1 - rank, .behind = rank}; });
}

}  // namespace trireme::schedule
