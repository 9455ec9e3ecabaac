// SPDX-License-Identifier: Apache-2.0
// Predictions against runs that were published.
#pragma once

#include <string>
#include <vector>

#include "plan/price/price.h"
#include "plan/validate/published.h"

namespace trireme::plan {

struct Validated {
  const PublishedRun* run = nullptr;
  Price price;
  double bytes = 0;  // predicted, of the kind that was measured; 0 where nothing was
  double time_error = 0, memory_error = 0;  // relative, signed; 0 where nothing was measured
};
// Runs that have a reason are left out.
std::vector<Validated> validate(const std::vector<PublishedRun>&);

// Mean absolute errors, of what was measured.
struct ErrorSummary {
  std::string name;
  int timed = 0, weighed = 0;  // runs with a time, with memory
  double time = 0, memory = 0;
  double bias = 0;  // mean signed error of time
};
ErrorSummary summary_of(const std::vector<Validated>&, const std::string& name);
// Of dense models in 16 bits: what the engine can run.
bool is_dense_16(const PublishedRun&);

}  // namespace trireme::plan
