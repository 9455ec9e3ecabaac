// SPDX-License-Identifier: Apache-2.0
// Memory of a rank of another training program: state, activations as that program keeps them,
// gathered and reduced layers, the loss, and what its allocator adds. The numbers are those of its
// stack file (spec::ProgramMemory). The engine's own memory is computed from its layers
// (rank_memory.h).
#pragma once

#include <array>

#include "plan/memory/in_flight.h"
#include "plan/price/price.h"

namespace trireme::plan {

// One pipeline rank, with what a price knows of it.
struct ProgramRank {
  const Job& job;
  const spec::Machine& machine;
  const Stack& stack;
  const Layout& layout;
  const LayerCosts& costs;
  const StageBlocks& cut;
  int number;
  const RankShare& share;
  const InFlight::Counts& counts;
};

// Returns bytes by Item. Item::reserved holds the context and what the allocator reserves without
// handing it out.
std::array<double, static_cast<size_t>(Item::count)> program_memory(const ProgramRank&);

}  // namespace trireme::plan
