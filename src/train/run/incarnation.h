// SPDX-License-Identifier: Apache-2.0
// Incarnation: what one rank builds on its bench for an epoch of the run, which is one formation of
// a group of ranks: the plan, the connection to the other ranks, the engine, and what depends on
// them.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ckpt/memory/copy_memory.h"
#include "engine/engine.h"
#include "train/checkpointing/peer/peer_copies.h"
#include "train/checkpointing/resume_point.h"
#include "train/checkpointing/run_checkpoints.h"
#include "train/report/run_text.h"
#include "train/run/bench.h"
#include "train/run/state/epoch_state.h"
#include "train/setup/fit.h"
#include "train/setup/host_memory_use.h"
#include "train/setup/rank.h"
#include "train/setup/ranks.h"
#include "train/signals/rank_sampler.h"
#include "train/trace/run_trace.h"

namespace trireme::train {

// Members are built in this order and destroyed in the reverse one: the engine goes before the
// communicators, and what refers to the engine before it.
struct Incarnation {
  // The bench must outlive it. In a later epoch of the run, ranks agree on the state that the
  // engine starts with: `kept` is what this rank has of the epoch before, and becomes what the
  // engine has received; none: the caller loads a checkpoint. Throws ConfigError, IoError or
  // OutOfMemory; no file has changed then. Collective.
  Incarnation(Bench&, const RankStart&, std::optional<KeptState>& kept);

  const spec::Plan& plan() const { return job->plan; }
  // Ends the engine and the connection to the other ranks after the last step; destructors abort.
  // Collective.
  void close() noexcept {
    engine->close(comm::End::finish);
    rank.close(comm::End::finish);
  }
  // May tokens exceed the experts' row budget, so that steps are repeated with a larger one?
  bool may_overflow() const;
  // May the engine be replaced during the attempt: by phases, row budgets, fall-back to bf16, or a
  // later epoch?
  bool may_rebuild() const;
  HostBytes host_bytes() const;  // predicted, of this rank with the current engine
  int64_t step_samples() const { return step_tokens(plan()) / plan().seq_len; }  // of all ranks
  // Replaces the engine by one for the sequence length and batch sizes of a leg, with the same
  // training state, which passes through host memory. REQUIRES: no other object refers to the
  // engine. Collective.
  void change_leg(const Leg&);
  // Replaces the engine by one for the steps after `step`, with these blocks in bf16, before a
  // checkpoint is loaded: the training state is lost. Throws OutOfMemory. REQUIRES and collective
  // as change_leg().
  void rebuild_after(int64_t step, const std::vector<int>& bf16_blocks);
  // Is the engine one for the steps after `step`, with these blocks in bf16?
  bool continues_after(int64_t step, const std::vector<int>& blocks) const {
    return leg == &bench.data.leg_at(step + 1) && bf16_blocks == blocks;
  }
  // The same as change_leg() with a larger budget of rows for experts. Throws OutOfMemory, with the
  // itemised table, if that does not fit.
  void change_row_budget(double);
  // The same with other blocks in bf16 (precision.bf16_blocks). If the engine would not fit, it is
  // rebuilt as it was, and the reason is returned; otherwise an empty text.
  std::string change_precision(const std::vector<int>& bf16_blocks);

  Bench& bench;
  const RankStart start;
  // The checkpoint that the run is expected to resume from, on this rank; loading may find it
  // damaged, and take an older one. None: the run starts.
  const std::optional<ResumePoint> resume_point;
  const Leg* leg;                // of `engine`
  double row_budget;             // of `job`: that of the configuration, or a larger one
  std::vector<int> bf16_blocks;  // of `job`: those of the configuration, and ones that fell back
  std::unique_ptr<FitJob> job;   // of `leg`
  Rank rank;
  const double connected_at;  // in seconds since 1970
  // Copies of the state that outlive this process; none: the run keeps none. Built with `peaks`.
  std::optional<ckpt::CopyMemory> copy_memory;
  int64_t copies_bytes = 0;  // predicted host memory of copies; 0: there are none
  std::string no_copies;     // why it keeps none, although it could; empty: it does, or cannot
  // Copies that ranks on other nodes keep; none: ranks send theirs to no other one. Likewise.
  std::optional<PeerCopies> peers;
  int64_t kept_bytes = 0;   // predicted host memory of those that this rank keeps
  std::string no_partners;  // why copies are not sent, although there are several nodes
  const RunPeaks peaks;     // on the first rank; empty on others
  std::unique_ptr<engine::Engine> engine;
  const bool has_given_weights;  // training.init_from; otherwise initialised from the seed
  // Host memory of this rank while its engine is replaced; measured: the largest copy so far.
  HostMemoryUse rebuild_memory;
  // ---- set by the run
  std::optional<RunCheckpoints> checkpoints;
  std::optional<RankSampler> sampler;
  std::optional<RunTrace> trace;
};

}  // namespace trireme::train
