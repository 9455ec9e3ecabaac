// SPDX-License-Identifier: Apache-2.0
// RunCheckpoints: when a run saves its state, what it saves besides tensors, and how it resumes
// from a checkpoint. Checkpointer writes and reads the files, MemoryCopies keeps copies in memory.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "base/text/json.h"
#include "ckpt/disk/disk.h"
#include "comm/register/epoch_writer.h"
#include "config/config.h"
#include "train/batches/data_sets.h"
#include "train/batches/run_tokenizer.h"
#include "train/checkpointing/checkpointer.h"
#include "train/checkpointing/memory/memory_copies.h"
#include "train/checkpointing/resume_changes.h"
#include "train/checkpointing/resume_point.h"
#include "train/run/state/timeline.h"
#include "train/setup/host_memory_use.h"

namespace trireme::train {

// Returns which checkpoints a run keeps.
ckpt::Retention retention_of(const config::Checkpoint&);

// Where a resumed run continues.
struct Resumed {
  int64_t step = 0;     // of the checkpoint
  int64_t samples = 0;  // consumed until then
  int64_t tokens = 0;   // trained on until then, in sequences of any length
  ckpt::Writer writer;  // the run that wrote the checkpoint
  base::Json numerics;  // CheckpointHooks::numerics; null: none
};

class RunCheckpoints {
 public:
  // All references must outlive it, the engine until release_engine(). Allocates memory for saves
  // only if checkpoint.enable is true or the run is to be resumed; `guard` is set on the first
  // rank.
  struct Parts {
    const config::Config& config;
    const DataSets& data;
    const Timeline& timeline;
    const base::Json& contents;  // DataSets::contents()
    const RunTokenizer& tokenizer;
    engine::Engine& engine;
    const spec::ModelSpec& model;
    Rank& rank;
    device::Device& device;
    ckpt::CopyMemory* copy_memory = nullptr;    // null: the run keeps no copies in memory
    PeerCopies* peers = nullptr;                // null: they are sent to no other rank
    comm::EpochWriter* epoch_writer = nullptr;  // RankStart::epoch_writer
    int64_t epoch = 0;                          // of the run's group of ranks
    SaveFigures earlier{};                      // saves of the same attempt before
    CopyFigures earlier_copies{};               // likewise
  };
  RunCheckpoints(const Parts&, const Resume&, ckpt::Guard guard, CheckpointHooks hooks);

  // What a run does for its checkpoints while it resumes. All are collective.
  struct ResumeHooks {
    // Makes sure that the engine is one for the steps after a checkpoint: of their sequence length
    // and batch, and with the number formats of its state 'numerics' (null: none). A caller that
    // has to replace the engine calls release_engine() before and load_into() after.
    std::function<void(int64_t step, const base::Json& numerics)> prepare;
    // Replays the steps after the checkpoint `from` up to `last`; may replace the engine likewise.
    std::function<void(const Resumed& from, int64_t last)> run_steps;
  };
  // Loads the requested checkpoint into an engine that was built for it; none: the run starts.
  // Throws ConfigError if the run would not continue the saved one, IoError, and Error if replayed
  // steps gave other bits. Nothing on disk has changed then. Collective.
  std::optional<Resumed> resume(const ResumeHooks& hooks);
  // Around a change of the engine by these hooks: release_engine() before, this after.
  void load_into(engine::Engine&);
  // Prepares the folder for saves, after resume(). Collective.
  void begin(const Checkpointer::Begin&);

  // Around a change of the run's engine after begin(): the last save becomes durable; later ones
  // save the state of the new engine. Both are collective.
  void release_engine();
  void use_engine(engine::Engine&);

  bool saves() const { return saves_; }
  // Bytes on disk of one checkpoint, all ranks together; 0: the run does not save. Computed from
  // the layout of the writer's files. REQUIRES: before begin(). Collective.
  int64_t checkpoint_bytes();
  // Called at steps at which ranks exchange requests: commits a save whose files are written, and
  // returns whether a save is due by the first rank's clock. Collective.
  bool poll();
  void save(int64_t step);  // collective
  void finish();  // waits until the last save is durable, and copies are sealed. Collective
  SaveFigures figures() const;

  // ---- copies in memory that outlives the process
  // Is a copy to be made after this step? The same on all ranks.
  bool copies_at(int64_t step) const { return copies_ && copies_->is_due(step); }
  // Makes it, unless ranks skip it. `step_seconds`: of a step, about. Waits for the device.
  // REQUIRES: copies_at(); a save of the same step was begun before. Collective.
  void copy(const KeptState::Point&, const std::vector<int>& bf16_blocks, double step_seconds);
  const CopyFigures& copy_figures() const { return copy_figures_; }
  HostMemoryUse copy_memory() const;
  // Host memory of this rank for saves, as predicted from the plan and as used. REQUIRES: after
  // finish().
  HostMemoryUse memory() const;

 private:
  base::Json own_config() const;
  base::Json run_state(int64_t step) const;
  base::Json saved_state(int64_t step) const;
  // Throws ConfigError if this run would not continue `loaded`; logs every other difference.
  void check(const Checkpointer::Loaded& loaded) const;
  void log_changes(const StateChanges&, const Checkpointer::Loaded&) const;
  // Returns a line with the options that set the saved batch and order of sums, and whether this
  // layout allows them; empty: they are set.
  std::string saved_keys_text(const Checkpointer::Loaded&) const;
  std::optional<Checkpointer::Loaded> load(const Checkpointer::LoadOptions&, const ResumeHooks&);
  // Returns what decides bits and differs from `loaded`; empty: nothing.
  std::string identity_changes(const Checkpointer::Loaded& loaded) const;
  // Throws ConfigError if replayed steps cannot give the bits of `loaded`.
  void check_bits(const Checkpointer::Loaded& loaded) const;
  void replay(const Checkpointer::Loaded& target, const ResumeHooks&);
  std::filesystem::path checkpoint_folder() const;
  // Returns the state 'numerics' of a checkpoint (null: it has none), or nothing if its manifest
  // cannot be read, which loading reports.
  std::optional<base::Json> saved_numerics(int64_t step) const;
  bool is_timed() const;
  double interval_seconds() const;  // REQUIRES: is_timed()

  void make_checkpointer(engine::Engine&);
  void make_copies(engine::Engine&, int64_t step);  // collective

  const config::Config& config_;
  const DataSets& data_;
  const Timeline& timeline_;
  const base::Json& contents_;
  const RunTokenizer& tokenizer_;
  const spec::ModelSpec& model_;
  engine::Engine* engine_;
  const spec::Plan* plan_;  // of the engine
  Rank& rank_;
  device::Device& device_;
  const Resume resume_;
  const bool saves_;
  const CheckpointHooks hooks_;
  std::unique_ptr<ckpt::Disk> disk_;
  const ckpt::Guard guard_;
  comm::EpochWriter* const epoch_writer_;
  std::optional<Checkpointer> checkpointer_;
  ckpt::CopyMemory* const copy_memory_;
  PeerCopies* const peers_;
  const int64_t epoch_;
  CopyPace copy_pace_;
  CopyFigures copy_figures_;
  std::optional<MemoryCopies> copies_;
  int64_t saved_step_ = -1;  // of the last save
  Checkpointer::Begin begin_;
  SaveFigures released_figures_;  // of checkpointers before the current one
  double saved_at_ = 0;           // start of the last save
};

}  // namespace trireme::train
