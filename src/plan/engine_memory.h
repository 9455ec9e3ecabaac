// SPDX-License-Identifier: Apache-2.0
// EngineMemory: bytes of the rank that needs the most, of layouts that Trireme's engine runs. They
// are added up by the functions that the engine allocates with (spec/predict.h), by kinds of layers
// instead of layer by layer, and are what spec::predict_memory() says but for the gaps that stages
// of different sizes leave in the stash. So a layout never needs less.
#pragma once

#include <cstdint>
#include <map>
#include <tuple>

#include "plan/pipe_lives.h"
#include "plan/price.h"
#include "spec/plan.h"

namespace trireme::plan {

// Without experts, cp, and formats and cuts that the engine does not have. Schedules with which it
// does not run some ZeRO stages count as others do.
bool is_engine_layout(const Job&, const Layout&);

// Fills in what layers do not say.
void add_engine_buffers(const Job&, const Stack&, const Layout&, LayerCosts&);

class EngineMemory {
 public:
  // Both must outlive it.
  EngineMemory(const Job& job, const Stack& stack) : job_(job), stack_(stack) {}

  // REQUIRES: is_engine_layout(), and no rule is broken. Without what libraries reserve.
  spec::MemoryTable largest(const Layout&, const LayerCosts&, const StageBlocks&);
  // Bytes that the engine takes at least: with the gaps, as far as some rounds of micro-batches
  // show them. Much dearer where a rank has several stages; `costs` are remembered by address.
  int64_t bytes_at_least(const Layout&, const LayerCosts& costs, const StageBlocks&);

 private:
  // What training state and the buffers of its collectives depend on.
  using StateKey = std::tuple<int, int, int, int, int, bool, int64_t, bool, bool>;

  const spec::MemoryTable& state_of(const Layout&, const LayerCosts&, const RankLives&);
  int64_t gaps_of(const Layout&, const LayerCosts&, const StageBlocks&, const RankLives&);
  spec::MemoryTable memory_of(const Layout&, const LayerCosts&, const PipeLives&, const RankLives&);

  const Job& job_;
  const Stack& stack_;
  PipeLivesTable lives_;
  std::map<StateKey, spec::MemoryTable> states_;
  // By layers, schedule and rank.
  std::map<std::tuple<const LayerCosts*, int64_t, int, int, Pipe, int>, int64_t> gaps_;
};

}  // namespace trireme::plan
