// SPDX-License-Identifier: Apache-2.0
// RunCheckpoints: when a run saves its state, what it saves besides tensors, and how it resumes
// from a checkpoint. Checkpointer writes and reads the files.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "base/text/json.h"
#include "ckpt/disk/disk.h"
#include "config/config.h"
#include "train/batches/data_sets.h"
#include "train/batches/run_tokenizer.h"
#include "train/checkpointing/checkpointer.h"
#include "train/checkpointing/resume_changes.h"

namespace trireme::train {

// Whether a run resumes from a checkpoint in its folder, and what may differ from it.
struct Resume {
  enum class From : uint8_t { start, newest, step };
  From from = From::start;
  int64_t step = 0;
  bool verifies = false;             // first replays the steps before it, and compares bits
  bool allows_data_change = false;   // other data, split, order or sequence length
  bool allows_batch_change = false;  // another global batch
};

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
    const base::Json& contents;  // DataSets::contents()
    const RunTokenizer& tokenizer;
    engine::Engine& engine;
    const spec::ModelSpec& model;
    Rank& rank;
    device::Device& device;
  };
  RunCheckpoints(const Parts&, const Resume&, ckpt::Guard guard, CheckpointHooks hooks);

  // Replays steps [first, last] with sample positions offset by `shift` (see TrainBatches).
  using RunSteps = std::function<void(int64_t first, int64_t last, int64_t shift)>;
  // Loads the requested checkpoint; none: the run starts. Throws ConfigError if the run would not
  // continue the saved one, IoError, and Error if replayed steps gave other bits. Nothing on disk
  // has changed then. Collective.
  std::optional<Resumed> resume(const RunSteps& run_steps);
  // Prepares the folder for saves, after resume(). Collective.
  void begin(const Checkpointer::Begin&);

  // Around a change of the run's engine, after begin(): the last save becomes durable; later ones
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
  void finish();            // waits until the last save is durable. Collective
  SaveFigures figures() const;
  // Host memory of this rank for saves, as predicted from the plan and as used. REQUIRES: after
  // finish().
  struct Memory {
    int64_t predicted_bytes = 0, measured_bytes = 0;
  };
  Memory memory() const;

 private:
  base::Json run_state(int64_t step) const;
  base::Json saved_state(int64_t step) const;
  // Throws ConfigError if this run would not continue `loaded`; logs every other difference.
  void check(const Checkpointer::Loaded& loaded) const;
  void log_changes(const StateChanges&, const base::Json& saved_plan) const;
  // Throws ConfigError if replayed steps cannot give the bits of `loaded`.
  void check_bits(const Checkpointer::Loaded& loaded) const;
  int64_t shift_after(const Checkpointer::Loaded&) const;
  void replay(const Checkpointer::Loaded& target, const RunSteps& run_steps);
  bool is_timed() const;
  double interval_seconds() const;  // REQUIRES: is_timed()

  void make_checkpointer(engine::Engine&);

  const config::Config& config_;
  const DataSets& data_;
  const base::Json& contents_;
  const RunTokenizer& tokenizer_;
  const spec::ModelSpec& model_;
  const spec::Plan* plan_;  // of the engine
  Rank& rank_;
  device::Device& device_;
  const Resume resume_;
  const bool saves_;
  const CheckpointHooks hooks_;
  std::unique_ptr<ckpt::Disk> disk_;
  const ckpt::Guard guard_;
  std::optional<Checkpointer> checkpointer_;
  Checkpointer::Begin begin_;
  SaveFigures released_figures_;  // of checkpointers before the current one
  double saved_at_ = 0;           // start of the last save
  int64_t shift_ = 0;  // offset of sample positions from those of DataSets; see TrainBatches
  int64_t loaded_step_ = 0, loaded_tokens_ = 0;
};

}  // namespace trireme::train
