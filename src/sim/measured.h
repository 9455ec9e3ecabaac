// SPDX-License-Identifier: Apache-2.0
// A step that was really run, as a simulated one is described: to be drawn beside it, and to feed
// a simulation with what its actions took.
#pragma once

#include <vector>

#include "sim/sim.h"

namespace trireme::sim {

// Of every rank and action, as Result::timeline: compute from when its inputs were there; a send's
// begin; a receive from when the rank came to it until its message was there. Both actions of a
// pair have the pair's.
using Timeline = std::vector<std::vector<Span>>;

// Mean seconds by stage and operation. What did not occur is 0, and a merged backward the sum of
// its halves. Nothing is known of memory and sizes of messages.
Costs measured_costs(const schedule::Schedule&, const Timeline&);
// What a message takes from its send, or from when its receiver was there if that was later, in the
// middle of all; 0 without messages.
double measured_latency(const schedule::Schedule&, const Timeline&);
// The step as it was. Exposed time and memory are not known.
Result measured_result(const schedule::Schedule&, const Timeline&);

}  // namespace trireme::sim
