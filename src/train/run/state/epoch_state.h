// SPDX-License-Identifier: Apache-2.0
// The training state on its way from an epoch of a run to the next one, in which some ranks are
// new processes: what a rank keeps of an aborted epoch, where the next one continues, and how ranks
// without that state receive it.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "ckpt/generation/save.h"
#include "spec/plan.h"
#include "train/run/state/engine_state.h"
#include "train/setup/rank.h"

namespace trireme::train {

// Where the engine of an epoch has its state from.
enum class StateSource : uint8_t { none, own_copy, peer, generation };
const char* name_of(StateSource);  // "its own copy"

// A complete state, which its engine vouched for, and where the run stands with it.
struct KeptState {
  struct Point {
    int64_t step = -1, samples = 0, tokens = 0;
    double row_budget = 0;  // of experts
  };
  Point point;
  std::vector<int> bf16_blocks;
  EngineState state;
  StateSource source = StateSource::own_copy;
};

// What one rank has: boxes of tensors, of the state after `step`; none: nothing that is trusted.
struct StateReport {
  std::optional<int64_t> step;
  std::vector<ckpt::TensorPieces> boxes;
};
struct LivePoint {
  int64_t step = 0;
  std::vector<int> sources;  // ranks that together have every box, the first of several replicas

  bool operator==(const LivePoint&) const = default;
};
// Returns the largest step for which every box of the tensors has a holder; none: the run continues
// from its newest checkpoint. `reports` are by rank.
std::optional<LivePoint> resume_point(std::span<const ckpt::TensorInfo> tensors,
                                      std::span<const StateReport> reports);

// Agrees with the other ranks on where their new epoch continues. `kept` becomes the state of this
// rank there: it stays, is received from the ranks that have it, or is dropped if the epoch
// continues from a checkpoint. Takes as much host memory as state_copy_bytes(), if ranks that hold
// the same boxes are among the sources. Collective.
void agree_on_state(Rank&, const spec::ModelSpec&, const spec::Plan&,
                    std::optional<KeptState>& kept);

}  // namespace trireme::train
