// SPDX-License-Identifier: Apache-2.0
// The training state on its way from an epoch of a run to the next one, in which some ranks are
// new processes: what a rank keeps of an aborted epoch, where the next one continues, and how ranks
// without that state receive it.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "ckpt/generation/save.h"
#include "ckpt/memory/copy_memory.h"
#include "spec/plan.h"
#include "train/run/state/engine_state.h"
#include "train/setup/rank.h"

namespace trireme::train {

// Where the engine of an epoch has its state from: the engine of the epoch before, in this process;
// a copy in memory that outlives processes; the memory of other ranks; a checkpoint.
enum class StateSource : uint8_t { none, live, memory_copy, peer, generation };
const char* name_of(StateSource);  // "its own copy in memory"

// A complete state, which its engine vouched for, and where the run stands with it.
struct KeptState {
  struct Point {
    int64_t step = -1, samples = 0, tokens = 0;
    double row_budget = 0;  // of experts
  };
  Point point;
  std::vector<int> bf16_blocks;
  EngineState state;
  StateSource source = StateSource::live;
};

// The state of one step that a rank has.
struct HeldState {
  // `sealed_copy`: a copy of which the rank does not know whether the others have sealed theirs. It
  // may be of a step that the others have not finished.
  enum class Kind : uint8_t { live, held_copy, sealed_copy };
  int64_t step = 0;
  Kind kind = Kind::live;
};
// What one rank has: the same boxes of tensors, of the state after each of these steps.
struct StateReport {
  std::vector<HeldState> states;
  std::vector<ckpt::TensorPieces> boxes;
};
struct LivePoint {
  int64_t step = 0;
  std::vector<int> sources;  // ranks that together have every box, the first of several replicas

  bool operator==(const LivePoint&) const = default;
};
// Returns the largest step for which every box of the tensors has a holder; none: the run continues
// from its newest checkpoint. A sealed copy counts only if every rank has a state of its step. Live
// states come before copies among the sources. `reports` are by rank.
std::optional<LivePoint> resume_point(std::span<const ckpt::TensorInfo> tensors,
                                      std::span<const StateReport> reports);

// Returns whether every box of the state is on at least two ranks whose live state is trusted after
// an abort, so that the loss of one rank loses nothing. A pure function of the plan.
bool has_live_replicas(const spec::ModelSpec&, const spec::Plan&);

// Agrees with the other ranks on where their new epoch continues. `kept` becomes the state of this
// rank there: it stays, comes from a copy in `memory` (null: there is none), is received from the
// ranks that have it, or is dropped if the epoch continues from a checkpoint. Every byte of a copy
// is compared with its hash before it is offered; `report` receives a line for one that is damaged.
// Takes as much host memory as state_copy_bytes(), if ranks that hold the same boxes are among the
// sources. Collective.
struct CopiesOfRank {
  const ckpt::CopyMemory* memory = nullptr;
  std::function<void(const std::string&)> report;
};
void agree_on_state(Rank&, const spec::ModelSpec&, const spec::Plan&, const CopiesOfRank&,
                    std::optional<KeptState>& kept);

}  // namespace trireme::train
