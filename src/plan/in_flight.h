// SPDX-License-Identifier: Apache-2.0
// How many micro-batches of a stage are kept at one time, read off the schedules that the engine
// runs.
#pragma once

#include <cstdint>
#include <unordered_map>

#include "plan/job.h"

namespace trireme::plan {

struct InFlight {
  // Of one rank at its peak, counted in stages: from F until B, from F until W, and from B until W
  // where they are apart.
  struct Counts {
    double f_to_b = 1, f_to_w = 1, b_to_w = 0;
  };
  Counts first, last;  // of the pipeline's ends
};

// Remembers what it was asked for.
class InFlightTable {
 public:
  const InFlight& find(const Layout&, int64_t micro_batches);

 private:
  std::unordered_map<uint64_t, InFlight> known_;
};

}  // namespace trireme::plan
