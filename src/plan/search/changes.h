// SPDX-License-Identifier: Apache-2.0
// Changes to a question for which nothing fits. Every change has been tried: with it a layout was
// found and confirmed.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "plan/search/finalists.h"

namespace trireme::plan {

struct Change {
  std::string what;  // for example "--grad-dtype bf16" or "24 GPUs"
  Proposal proposal;
};
// Returns changes after which a layout fits, the smallest first: limits on the layout, types of
// master weights and gradients, the usable fraction of memory, more GPUs, and layouts that the
// engine cannot run yet.
std::vector<Change> changes_that_fit(const Job&, const spec::Machine&, const Stack&,
                                     const SearchOptions&, const PlanProgress&);

// The memory of weights, gradients, master weights and moments, sharded over all GPUs.
struct StateNeed {
  double parameters = 0, bytes_per_parameter = 0;
  double bytes = 0;
  int64_t min_gpus = 0;  // the fewest GPUs whose memory holds it
};
// Returns the need of the precision with the smallest state.
StateNeed state_need(const Job&, const spec::Machine&, const Stack&, const SearchOptions&);

}  // namespace trireme::plan
