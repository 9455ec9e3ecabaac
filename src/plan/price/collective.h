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

// The same for a sum. In the fixed order (comm::Communicator, spec/sums/sum_levels.h) the ranks
// of a domain send each other what they have, add it in memory, and do so again with partial sums
// between domains; an all-reduce gathers the results. No switch and no ring adds, and nothing
// overlaps. REQUIRES: kind is reduce_scatter or all_reduce, or in_fixed_order is false.
double sum_seconds(const spec::Machine&, Collective kind, const Group&, double bytes,
                   bool in_fixed_order);

// Returns the number of domains that the ranks of a group are in.
int64_t domains_of(const spec::Machine&, const Group&);

// Returns the time of an all-to-all in two levels: a row crosses the network once for each domain
// that needs it and is copied inside that domain, one row after the other, so that the slower level
// counts. `bytes`: as for an all-to-all, all copies; `crossing`: the part of them that crosses the
// network.
double two_level_seconds(const spec::Machine&, const Group&, double bytes, double crossing);

// Returns the time of a message from a rank to the one `stride` GPUs further.
double message_seconds(const spec::Machine&, int64_t stride, double bytes);

}  // namespace trireme::plan
