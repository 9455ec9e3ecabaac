// SPDX-License-Identifier: Apache-2.0
// Checkpointer: saves the complete state of a run while training continues, and loads it into any
// layout.
//
// A save is a snapshot, a sink and a commit: a Snapshot copies the state after a step to host
// memory (save/file_staging.h) while the next step computes; a thread writes it into a sink, the
// rank's file (ckpt/generation/file_sink.h), which hashes and seals it; and the first rank commits
// the generation once all ranks have reported in poll() that theirs is durable (save/commit.h). A
// failed save is logged and abandoned; training continues.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/program_id.h"
#include "ckpt/generation/folder.h"
#include "ckpt/generation/generation.h"
#include "ckpt/generation/tokenizer_copy.h"
#include "ckpt/marks/resume_choice.h"
#include "engine/engine.h"
#include "train/checkpointing/peer/partners.h"
#include "train/checkpointing/save/commit.h"
#include "train/checkpointing/save/file_staging.h"
#include "train/checkpointing/snapshot.h"
#include "train/setup/rank.h"

namespace trireme::train {

struct CheckpointOptions {
  std::filesystem::path folder;             // contains all generations
  ckpt::Retention retention{.latest = 2};   // of generations
  bool reread = false;                      // read back and compare after the write
  ckpt::Guard guard;                        // set on the first rank; empty: no guard
  std::function<void(int64_t step)> claim;  // CommitOptions::claim
  // Copied into every checkpoint (ckpt/generation/tokenizer_copy.h).
  std::vector<ckpt::NamedBytes> tokenizer;
};

// A save that succeeded.
struct SavedGeneration {
  int64_t step = 0;
  int64_t bytes = 0;         // of all ranks' files, without the manifest
  double stall_seconds = 0;  // as in SaveFigures
  double durable_seconds = 0;
};

// Called on the thread that calls save(), poll() and finish().
struct CheckpointHooks {
  std::function<void(const std::string&)> log;        // a human-readable log line
  std::function<void(const SavedGeneration&)> saved;  // on the first rank; may be empty
  std::function<void(int64_t step, const std::string& why)> failed;  // the same
  // On the first rank; may be empty.
  std::function<void(int64_t step, const PartnerNews&)> partner;
  // Returns the state of a run's 8-bit numbers, which is saved, too; null: none. May be empty.
  std::function<base::Json()> numerics;
  base::ProgramId program;  // named in the manifests
};

// Totals over all saves.
struct SaveFigures {
  int64_t saves = 0, failed = 0;
  int64_t bytes = 0;  // of this rank's files
  // Time in which the host was blocked, waiting for the previous save and starting the next.
  double stall_seconds = 0;
  double durable_seconds = 0;  // of the last save: from its start until it was committed
};

class Checkpointer {
 public:
  Checkpointer(engine::Engine&, const spec::ModelSpec&, Rank&, device::Device&, ckpt::Disk&,
               CheckpointOptions options, CheckpointHooks hooks);

  // Predicts the host memory that saves of a rank take: the copy of the state and the workspace of
  // the writer. The text of the first rank's manifest comes on top.
  static int64_t memory_bytes(const spec::ModelSpec&, const spec::Plan&, int rank, bool reread);
  // Returns how much of it was really used. REQUIRES: no save is in progress.
  int64_t used_bytes() const;
  // Bytes on disk of one save: this rank's data file and index, and the manifest that the first
  // rank writes with this state, as far as the digits of its numbers are known.
  int64_t file_bytes() const;
  int64_t manifest_bytes(const base::Json& state) const;

  // Saves after step `step` (1 is the first). Waits for the previous save if it is still being
  // written. `state`: what the run saves besides tensors. Collective.
  void save(int64_t step, const base::Json& state);
  // Commits a save whose files are all written. Collective; cheap when there is none. Throws Fenced
  // on every rank if another process has taken the run's folder over; finish() likewise.
  void poll();
  // Waits for a save that is in progress, and commits it. Collective.
  void finish();
  const SaveFigures& figures() const { return figures_; }
  // What save() copies with, for another snapshot of the same step.
  const Snapshot& snapshot() const { return snapshot_; }

  struct Loaded {
    int64_t step = 0;
    base::Json state;
    spec::Plan plan;  // empty if weights were imported
    std::filesystem::path folder;
    ckpt::Writer writer;
  };
  struct LoadOptions {
    int64_t step = -1;   // of this step only; -1: the first of the choice that verifies
    int64_t below = -1;  // older than this step, whatever its mark; -1: any
    ckpt::WantedMark mark = ckpt::WantedMark::not_bad;  // of the choice
    bool is_needed = true;  // throw if generations exist and none can be used
  };
  // Loads a generation; returns none if there is none. Every rank reads the parts that it needs;
  // nothing on disk changes. Throws IoError if the requested one cannot be used. Collective.
  std::optional<Loaded> load(const LoadOptions&);

  // ---- load() step by step, for a caller that has to change the engine for what it loads
  // Returns the steps of the generations that the first rank has, in the order in which they are to
  // be tried. Throws what resume_choice() throws, on the first rank. Collective.
  std::vector<int64_t> candidates(const LoadOptions&);
  // Returns none, and logs the reason, if some rank cannot use that generation; the engine's state
  // is undefined then. Collective.
  std::optional<Loaded> load_step(int64_t step);
  // Returns none if the run may start without one, otherwise throws IoError. REQUIRES: none of the
  // candidates could be loaded.
  std::optional<Loaded> loaded_none(const LoadOptions&, const std::vector<int64_t>& tried) const;
  struct Begin {
    int64_t step = -1;         // that the run was resumed from; -1: it starts
    ckpt::Writer writer;       // this run; set on the first rank
    std::string previous_run;  // the run that had the folder before; may be empty
  };
  // Prepares the folder for saves: removes incomplete files of earlier attempts and of the previous
  // run, and moves generations after that step aside, because this run does not continue them.
  // Collective; before the first save. Throws IoError.
  void begin_run(const Begin&);
  // Instead of begin_run(): continues an attempt that another Checkpointer began. Collective.
  void continue_run(const Begin&);
  // Returns the name of the first tensor whose bits on some rank differ from that generation;
  // empty: none. Collective. Throws IoError.
  std::string difference(int64_t step);

 private:
  // On the thread of the commit.
  ckpt::Receipt store(const ckpt::Draft&);
  void end_save(const SaveResult&);
  // Returns false if this rank cannot use it; `problem` has the reason.
  bool try_load(int64_t step, Loaded&, std::string& problem);

  engine::Engine& engine_;
  const spec::ModelSpec& model_;
  Rank& rank_;
  ckpt::Disk& disk_;
  const CheckpointOptions options_;
  const CheckpointHooks hooks_;
  FileStaging staging_;
  // Declared after the memory that it copies to: its destructor waits for queued copies.
  Snapshot snapshot_;
  Commit commit_;     // its destructor waits for the thread that uses the others
  int64_t step_ = 0;  // of the last save
  double began_ = 0, stall_seconds_ = 0;
  SaveFigures figures_;
};

}  // namespace trireme::train
