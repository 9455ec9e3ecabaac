// SPDX-License-Identifier: Apache-2.0
// TraceSteps: the steps of a run that are traced.
#pragma once

#include <cstdint>
#include <string>

namespace trireme::train {

// Steps [first, last], counted from 1; first = 0: none.
struct TraceSteps {
  int64_t first = 0, last = 0;
  bool contains(int64_t step) const { return first > 0 && step >= first && step <= last; }
};
// Parses "first:last"; throws ConfigError. `steps`: of the run.
TraceSteps trace_steps_from(const std::string& text, int64_t steps);

}  // namespace trireme::train
