// SPDX-License-Identifier: Apache-2.0
// The common part of ZB-H1 and ZB-H2: 1F1B with split backward, in which a rank runs `ahead`
// forwards ahead and its weight gradients `behind` micro-batches later.
#pragma once

#include <functional>

#include "schedule/schedule.h"

namespace trireme::schedule {

struct Lead {
  int ahead = 0, behind = 0;
};
Schedule zero_bubble(int ranks, int microbatches, const std::function<Lead(int rank)>&);

}  // namespace trireme::schedule
