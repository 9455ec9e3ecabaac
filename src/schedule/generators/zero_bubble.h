// SPDX-License-Identifier: Apache-2.0
// What ZB-H1 and ZB-H2 have in common: 1F1B with the backward apart, in which a rank runs
// `ahead` forwards ahead and its weight gradients `behind` micro-batches behind.
#pragma once

#include <functional>

#include "schedule/schedule.h"

namespace trireme::schedule {

struct Lead {
  int ahead = 0, behind = 0;
};
Schedule zero_bubble(int ranks, int microbatches, const std::function<Lead(int rank)>&);

}  // namespace trireme::schedule
