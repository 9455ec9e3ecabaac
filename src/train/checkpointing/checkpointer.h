// SPDX-License-Identifier: Apache-2.0
// Checkpointer: saves the whole state of a run while it goes on, and brings it back into any
// layout.
//
// A save takes the state as it is after a step: it is copied to host memory (staging) on a stream
// of its own while the next step computes, whose update waits if the copy is not done; a thread
// writes, hashes and syncs. With several ranks each writes its own file, and the first commits once
// all have said that theirs is durable, which they do when they poll(). What goes wrong with a
// save is said and ends the save, not the run.
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
#include "engine/engine.h"
#include "train/checkpointing/saved_state.h"
#include "train/setup/rank.h"

namespace trireme::train {

struct CheckpointOptions {
  std::filesystem::path folder;  // of all generations
  int64_t keep = 2;              // generations; 0: all
  bool reread = false;           // after the write
  ckpt::Guard guard;             // set on the first rank; empty: no guard
};

// A save that ended well.
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
  base::ProgramId program;                            // which the manifests name
};

// Of all saves.
struct SaveFigures {
  int64_t saves = 0, failed = 0;
  int64_t bytes = 0;  // of this rank's files
  // For which the host could not go on: for the save before to end, and to begin this one.
  double stall_seconds = 0;
  double durable_seconds = 0;  // from the save until it was committed; of the last one
};

class Checkpointer {
 public:
  Checkpointer(engine::Engine&, const spec::ModelSpec&, Rank&, device::Device&, ckpt::Disk&,
               CheckpointOptions options, CheckpointHooks hooks);
  ~Checkpointer();  // waits for the thread

  // Host memory that saves of a rank take, known before a run starts: the copy of the state,
  // and what its writer works in. The first rank's manifest, which is text, comes on top.
  static int64_t memory_bytes(const spec::ModelSpec&, const spec::Plan&, int rank, bool reread);
  // How much of it was really used. REQUIRES: no save is under way.
  int64_t used_bytes() const;
  // Bytes on disk of one save: of this rank's data file and index, and of the manifest that the
  // first rank writes with this state, as far as the digits of its numbers are known.
  int64_t file_bytes() const;
  int64_t manifest_bytes(const base::Json& state) const;

  // After step `step` (1 is the first). Waits for the save before it, if that is still being
  // written. `state` is what the run keeps besides. Collective.
  void save(int64_t step, const base::Json& state);
  // Commits a save whose files are all written. Collective; cheap when there is none. Throws Fenced
  // on every rank if another process has taken the run's folder over; finish() likewise.
  void poll();
  // Waits for a save that is under way, and commits it. Collective.
  void finish();
  const SaveFigures& figures() const { return figures_; }

  struct Loaded {
    int64_t step = 0;
    base::Json state, plan;
    std::filesystem::path folder;
    ckpt::Writer writer;
  };
  struct Wanted {
    int64_t step = -1;      // this one; -1: the newest that verifies
    int64_t below = -1;     // older than this; -1: any
    bool is_needed = true;  // where generations exist, that none can be used is an error
  };
  // Brings a generation back; none if there is none. Every rank reads what it needs; nothing on
  // disk changes. Throws IoError where the asked one cannot be used. Collective.
  std::optional<Loaded> load(const Wanted&);
  struct Begin {
    int64_t step = -1;         // that the run goes on from; -1: it starts
    ckpt::Writer writer;       // this run, given on the first rank
    std::string previous_run;  // that had the folder before; may be empty
  };
  // The run saves from here on: what its earlier attempts and the run before it left half written
  // is removed, and generations after that step, which are of another future, are set aside.
  // Collective; before the first save. Throws IoError.
  void begin_run(const Begin&);
  // The first tensor of which some rank has other bits than that generation; empty: none.
  // Collective. Throws IoError.
  std::string difference(int64_t step);

 private:
  // What ranks tell each other of a save. The first alone commits.
  enum class Phase : uint8_t { none, writing, written, committing, durable, failed, fenced };
  struct Status {
    Phase phase = Phase::none;
    ckpt::FileInfo file;
  };

  bool begin_together(int64_t step);  // false: the draft could not be made
  Status status();
  void set_status(const Status&, const std::string& problem);
  // Runs `work` on the writer's thread; what it throws ends the save, and so does a thread that
  // cannot be started.
  void start(std::function<Status()> work);
  static ckpt::IoOptions io_of(const ckpt::FileLayout&, bool reread);
  ckpt::IoOptions io() const { return io_of(layout_, options_.reread); }
  ckpt::FileInfo write();
  void commit(const std::vector<Status>&);
  void end_save(const std::vector<Status>&);
  [[noreturn]] void throw_fenced();
  void join();
  // False: this rank cannot use it, and says why.
  bool try_load(int64_t step, Loaded&, std::string& problem);

  engine::Engine& engine_;
  const spec::ModelSpec& model_;
  Rank& rank_;
  ckpt::Disk& disk_;
  CheckpointOptions options_;
  CheckpointHooks hooks_;
  ckpt::FileLayout layout_;
  device::HostBuffer memory_;
  // After the memory that it copies to: a stream ends with what is queued on it.
  std::unique_ptr<device::Stream> copy_;
  std::byte* staged_;               // in it, the file as it will be,
  ckpt::Workspace workspace_;       // and after it what the writer works in
  std::vector<StagedCopy> copies_;  // the same for every save

  // ---- the save that is under way
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
  // Of commit(), on the writer's thread; read when that has ended.
  double durable_at_ = 0;
  std::string not_removed_;  // why older generations are still there
  SaveFigures figures_;
};

}  // namespace trireme::train
