// SPDX-License-Identifier: Apache-2.0
// The memory of one rank of another training program: state, activations as that program keeps
// them, gathered and reduced layers, the loss, and the overhead of its allocator. The constants
// come from its stack file (spec::ProgramMemory). The memory of Trireme's engine is computed from
// its layers (engine_memory.h, rank_memory.h).
#pragma once

#include <array>

#include "plan/memory/in_flight.h"
#include "plan/price/price.h"

namespace trireme::plan {

// One pipeline rank, with the inputs of its price.
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

// Returns bytes by Item. Item::reserved is the device context and memory that the allocator has
// reserved but not handed out.
std::array<double, static_cast<size_t>(Item::count)> program_memory(const ProgramRank&);

}  // namespace trireme::plan
