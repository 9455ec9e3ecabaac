// SPDX-License-Identifier: Apache-2.0
// The time of collectives and messages, which depends on where their ranks are.
#pragma once

#include <cstdint>

#include "spec/machine.h"

namespace trireme::plan {

// `size` ranks, each `stride` GPUs from the next. Every GPU of the machine is in such a group, and
// all groups communicate at the same time.
struct Group {
  int64_t size = 1, stride = 1;
};

enum class Collective : uint8_t { all_reduce, all_gather, reduce_scatter, all_to_all };

// Returns the time of the best algorithm: ring, tree or, if the group spans several domains with
// several ranks in each, one level after the other. `bytes` is the size of the full tensor (before
// an all-reduce or reduce-scatter, after an all-gather); for an all-to-all it is the size of one
// rank's input, its own part included.
double collective_seconds(const spec::Machine&, Collective, const Group&, double bytes);

// Returns the time of a message from a rank to the one `stride` GPUs further.
double message_seconds(const spec::Machine&, int64_t stride, double bytes);

}  // namespace trireme::plan
