// SPDX-License-Identifier: Apache-2.0
// A measured step in the form of a simulated one: to be drawn beside it, and to provide the costs
// of a simulation.
#pragma once

#include <vector>

#include "sim/sim.h"

namespace trireme::sim {

// The span of every rank and action, as Result::timeline: compute begins when its inputs have
// arrived; a send has its begin; a receive lasts from when the rank reached it until its message
// arrived. Both actions of a pair have the span of the pair.
using Timeline = std::vector<std::vector<Span>>;

// Returns mean seconds by stage and operation: 0 for operations that did not occur, and B + W for a
// merged backward that did not. Memory and sizes of messages are unknown.
Costs measured_costs(const schedule::Schedule&, const Timeline&);
// Returns the median time of a message from its send, or from when its receiver was ready if that
// was later; 0 without messages.
double measured_latency(const schedule::Schedule&, const Timeline&);
// Returns the measured step. Exposed time and memory are unknown.
Result measured_result(const schedule::Schedule&, const Timeline&);

}  // namespace trireme::sim
