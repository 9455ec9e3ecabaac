// SPDX-License-Identifier: Apache-2.0
// What would have to change where nothing fits. Every change that is named was tried: a layout was
// found with it, and confirmed.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "plan/search/finalists.h"

namespace trireme::plan {

struct Change {
  std::string what;  // as "--grad-dtype bf16" or "24 GPUs"
  Proposal proposal;
};
// The least change first: limits on the layout, types of master weights and gradients, the part of
// memory that may be used, then more GPUs, then what the engine cannot run yet.
std::vector<Change> changes_that_fit(const Job&, const spec::Machine&, const Stack&,
                                     const SearchOptions&, const PlanProgress&);

// Weights, gradients, master weights and moments, spread over all GPUs.
struct StateNeed {
  double parameters = 0, bytes_per_parameter = 0;
  double bytes = 0;
  int64_t min_gpus = 0;  // that hold it, by memory alone
};
// Returns the need of the precision with the smallest state. REQUIRES: a model without experts.
StateNeed state_need(const Job&, const spec::Machine&, const Stack&, const SearchOptions&);

}  // namespace trireme::plan
