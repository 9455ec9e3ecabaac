// SPDX-License-Identifier: Apache-2.0
// Compares predictions with published runs.
#pragma once

#include <string>
#include <vector>

#include "plan/price/price.h"
#include "plan/validate/published.h"

namespace trireme::plan {

struct Validated {
  const PublishedRun* run = nullptr;
  Price price;
  double bytes = 0;  // predicted, of the measured kind; 0 if memory was not measured
  double time_error = 0, memory_error = 0;  // relative, signed; 0 if not measured
};
// Skips runs that have a reason.
std::vector<Validated> validate(const std::vector<PublishedRun>&);

// Mean absolute errors of the measured values.
struct ErrorSummary {
  std::string name;
  int timed = 0, weighed = 0;  // runs with a time, with memory
  double time = 0, memory = 0;
  double bias = 0;  // mean signed error of time
};
ErrorSummary summary_of(const std::vector<Validated>&, const std::string& name);
// Returns whether the run is of a dense model in 16 bits, as the engine can train it.
bool is_dense_16(const PublishedRun&);

}  // namespace trireme::plan
