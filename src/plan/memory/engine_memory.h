// SPDX-License-Identifier: Apache-2.0
// EngineMemory computes the bytes of the rank with the highest total, for layouts that Trireme's
// engine runs. It calls the functions that the engine allocates with (spec/memory/predict.h) once
// for each kind of layer instead of for every layer. The result equals spec::predict_memory() to
// the byte, except for the gaps that stages of different sizes leave in the stash; so it is a lower
// bound.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "plan/memory/pipe_lives.h"
#include "plan/price/price.h"
#include "spec/plan.h"

namespace trireme::plan {

// Returns whether the engine has all parts of the layout: its recipe, key and value heads that
// divide by tp, and with experts sequence parallelism along tp. It does not check which ZeRO stages
// a schedule runs with.
bool is_engine_layout(const Job&, const Layout&);

// Fills in the buffers that depend on the micro-batch but on no layer.
void add_engine_buffers(const Job&, const Layout&, LayerCosts&);

class EngineMemory {
 public:
  // Both arguments must outlive the EngineMemory.
  EngineMemory(const Job& job, const Stack& stack)
      : job_(job), stack_(stack), is_routed_(has_experts(job)) {}

  // Returns the memory without gaps and without the memory that libraries reserve. REQUIRES:
  // is_engine_layout(), and no rule is broken.
  spec::MemoryTable largest(const Layout&, const LayerCosts&, const StageBlocks&);
  // Returns a lower bound of the bytes that the engine allocates, with gaps: all gaps for schedules
  // of up to max_placed_passes passes, those of the first rounds for longer ones. Slow if a rank
  // has several stages. Results are cached by the address of `costs`.
  int64_t bytes_at_least(const Layout&, const LayerCosts& costs, const StageBlocks&);

 private:
  // The fields of a layout, and the layers of a rank, on which training state and the buffers of
  // its collectives depend.
  using StateKey = std::pair<std::array<int64_t, 23>, std::vector<bool>>;
  struct StateKeyHash {
    size_t operator()(const StateKey&) const;
  };

  const spec::MemoryTable& state_of(const Layout&, const LayerCosts&, const RankLives&);
  int64_t gaps_of(const Layout&, const LayerCosts&, const StageBlocks&, const RankLives&);
  spec::MemoryTable memory_of(const Layout&, const LayerCosts&, const PipeLives&, const RankLives&);

  const Job& job_;
  const Stack& stack_;
  const bool is_routed_;  // has experts
  PipeLivesTable lives_;
  std::unordered_map<StateKey, spec::MemoryTable, StateKeyHash> states_;
  // Keys: layers, micro-batches, pp, chunks, schedule, rank.
  std::map<std::tuple<const LayerCosts*, int64_t, int, int, Kind, int>, int64_t> gaps_;
};

}  // namespace trireme::plan
