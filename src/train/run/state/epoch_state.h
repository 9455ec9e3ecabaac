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
#include "train/checkpointing/peer/copy_transfer.h"
#include "train/checkpointing/peer/kept_store.h"
#include "train/run/state/engine_state.h"
#include "train/setup/rank.h"

namespace trireme::train {

// Where the engine of an epoch has its state from: the engine of the epoch before, in this process;
// a copy in memory that outlives processes; such a copy that another node has kept; the memory of
// other ranks; a checkpoint.
enum class StateSource : uint8_t { none, live, memory_copy, kept_copy, peer, generation };
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
  std::vector<int> fetched;  // ranks whose copies came from those that kept them, ascending
};

// The state of one step that a rank has.
struct HeldState {
  // `sealed_copy`: a copy of which the rank does not know whether the others have sealed theirs. It
  // may be of a step that the others have not finished.
  enum class Kind : uint8_t { live, held_copy, sealed_copy };
  int64_t step = 0;
  Kind kind = Kind::live;
  int keeper = -1;  // the rank that keeps the copy for it; -1: the rank itself has the state

  bool operator==(const HeldState&) const = default;
};
// What one rank has, or others keep for it: the same boxes of tensors, of the state after each of
// these steps.
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
// states come before copies among the sources, and those before copies that other ranks keep.
// `reports` are by rank.
std::optional<LivePoint> resume_point(std::span<const ckpt::TensorInfo> tensors,
                                      std::span<const StateReport> reports);

// Returns whether every box of the state is on at least two ranks, and on two nodes if there are
// several: `nodes` has the node of each rank; empty: all are on one. A pure function of the plan.
bool has_replicas(const spec::ModelSpec&, const spec::Plan&, std::span<const int> nodes = {});
// The same of ranks whose live state is trusted after an abort: the loss of one rank, or node,
// loses nothing.
bool has_live_replicas(const spec::ModelSpec&, const spec::Plan&, std::span<const int> nodes = {});

// Agrees with the other ranks on where their new epoch continues. `kept` becomes the state of this
// rank there: it stays, comes from a copy in `memory` (null: there is none) or from one that
// another rank has kept, is received from the ranks that have it, or is dropped if the epoch
// continues from a checkpoint. Every byte of a copy is compared with its hash before it is offered,
// and of one that is kept before it is used: if it is damaged, or cannot be fetched, the ranks
// agree anew without it. `report` receives a line about each of them. Takes as much host memory as
// state_copy_bytes(), if ranks that hold the same boxes are among the sources, and as one copy
// while a kept one is fetched. Collective.
struct CopiesOfRank {
  const ckpt::CopyMemory* memory = nullptr;
  std::function<void(const std::string&)> report;
  // ---- where ranks keep copies of others; on all ranks, or on none
  std::vector<KeptStore::Kept> kept;  // by this rank
  // Fetches the copy of this rank's state; throws PeerLost.
  std::function<FetchedCopy(int keeper, const ckpt::CopyShape&, int64_t step)> fetch;
  int buffers = ckpt::min_copy_buffers;  // of its shape
};
void agree_on_state(Rank&, const spec::ModelSpec&, const spec::Plan&, const CopiesOfRank&,
                    std::optional<KeptState>& kept);

}  // namespace trireme::train
