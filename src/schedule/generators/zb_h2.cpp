// SPDX-License-Identifier: Apache-2.0
// ZB-H2 (Qi et al., 2024): ranks run ahead until the first gradient returns, so that none waits
// between its first action and its last when F, B and W take equally long. Ranks begin one after
// the other and end one after the other. Every rank has 2 * ranks - 1 micro-batches in flight.
#include "schedule/generators/zero_bubble.h"

namespace trireme::schedule {

Schedule zb_h2(int ranks, int microbatches) {
  return zero_bubble(ranks, microbatches, [&](int rank) {
    return Lead{.ahead = 2 * (ranks - 1 - rank), .behind = 2 * rank};
  });
}

}  // namespace trireme::schedule
