// SPDX-License-Identifier: Apache-2.0
// What a collective takes, by where its ranks are.
#pragma once

#include <cstdint>

#include "spec/machine.h"

namespace trireme::plan {

// `size` ranks, each `stride` GPUs from the next, in domains of neighbouring GPUs. All
// GPUs are in such groups that communicate at one time.
struct Group {
  int64_t size = 1, stride = 1;
};

enum class Collective : uint8_t { all_reduce, all_gather, reduce_scatter, all_to_all };

// `bytes` of the whole tensor: before an all-reduce or reduce-scatter, after an all-gather; of what
// one rank sends, its own part included, for an all-to-all. The best of ring, tree and, where ranks
// of a domain and of several meet, both levels one after the other.
double collective_seconds(const spec::Machine&, Collective, const Group&, double bytes);

// From a rank to the one `stride` GPUs on.
double message_seconds(const spec::Machine&, int64_t stride, double bytes);

}  // namespace trireme::plan
