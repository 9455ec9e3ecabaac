// SPDX-License-Identifier: Apache-2.0
// Checkpointer: saves the complete state of a run while training continues, and loads it into any
// layout.
//
// A save takes the state after a step: a Snapshot copies it to host memory while the next step
// computes; a thread writes, hashes and syncs.
// With several ranks each writes its own file, and the first rank commits once all have reported in
// poll() that theirs is durable. A failed save is logged and abandoned; training continues.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/program_id.h"
#include "ckpt/disk/workspace.h"
#include "ckpt/generation/folder.h"
#include "ckpt/generation/generation.h"
#include "ckpt/generation/save.h"
#include "ckpt/generation/tokenizer_copy.h"
#include "engine/engine.h"
#include "train/checkpointing/saved_state.h"
#include "train/checkpointing/snapshot.h"
#include "train/setup/rank.h"

namespace trireme::train {

struct CheckpointOptions {
  std::filesystem::path folder;  // contains all generations
  int64_t keep = 2;              // generations; 0: all
  bool reread = false;           // read back and compare after the write
  ckpt::Guard guard;             // set on the first rank; empty: no guard
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
  ~Checkpointer();  // waits for the thread

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
    int64_t step = -1;      // of this step only; -1: the newest that verifies
    int64_t below = -1;     // older than this step; -1: any
    bool is_needed = true;  // throw if generations exist and none can be used
  };
  // Loads a generation; returns none if there is none. Every rank reads the parts that it needs;
  // nothing on disk changes. Throws IoError if the requested one cannot be used. Collective.
  std::optional<Loaded> load(const LoadOptions&);

  // ---- load() step by step, for a caller that has to change the engine for what it loads
  // Returns the steps of the generations that the first rank has, newest first. Collective.
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
  // The state of a save, which ranks exchange. Only the first rank commits.
  enum class Phase : uint8_t { none, writing, written, committing, durable, failed, fenced };
  struct Status {
    Phase phase = Phase::none;
    ckpt::FileInfo file;
  };

  // Creates the draft's folder on the first rank and sends its number to the others. Returns false
  // if it could not be created.
  bool begin_together(int64_t step);
  Status status();
  void set_status(const Status&, const std::string& problem);
  // Runs `work` on the writer thread. An exception from it fails the save, and so does a thread
  // that cannot be started.
  void start(std::function<Status()> work);
  static ckpt::IoOptions io_of(const ckpt::FileLayout&, bool reread);
  static int64_t joining_bytes(const spec::Plan&);  // to join split weights in
  // The writer of a rank first joins split weights, then writes the file, in the same memory.
  static int64_t workspace_bytes(const ckpt::FileLayout&, const spec::Plan&, int rank,
                                 const ckpt::IoOptions&);
  ckpt::IoOptions io() const { return io_of(layout_, options_.reread); }
  ckpt::FileInfo write();
  void commit(const std::vector<Status>&);
  void end_save(const std::vector<Status>&);
  [[noreturn]] void throw_fenced();
  void join();
  // Returns false if this rank cannot use it; `problem` has the reason.
  bool try_load(int64_t step, Loaded&, std::string& problem);

  engine::Engine& engine_;
  const spec::ModelSpec& model_;
  Rank& rank_;
  ckpt::Disk& disk_;
  CheckpointOptions options_;
  CheckpointHooks hooks_;
  ckpt::FileLayout layout_;
  device::HostBuffer memory_;
  // Declared after the memory that it copies to: its destructor waits for queued copies.
  Snapshot snapshot_;
  std::byte* staged_;          // in memory_: the content of the file,
  ckpt::Workspace workspace_;  // followed by the writer's workspace

  // ---- the save that is in progress
  bool is_saving_ = false;
  int64_t step_ = 0;
  std::optional<ckpt::Draft> draft_;
  ckpt::Manifest manifest_;
  double began_ = 0, stall_seconds_ = 0;
  std::thread writer_;
  std::mutex mutex_;  // guards status_ and problem_
  std::condition_variable changed_;
  Status status_;
  std::string problem_;
  // Set by commit() on the writer thread; read after that thread has ended.
  double durable_at_ = 0;
  std::string not_removed_;  // why older generations could not be removed
  SaveFigures figures_;
};

}  // namespace trireme::train
