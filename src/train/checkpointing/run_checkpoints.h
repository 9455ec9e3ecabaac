// SPDX-License-Identifier: Apache-2.0
// RunCheckpoints: when a run saves its state, what it keeps beside the tensors, and how it
// continues from what was saved. Checkpointer does the saving.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "base/text/json.h"
#include "ckpt/disk/disk.h"
#include "config/config.h"
#include "train/checkpointing/checkpointer.h"

namespace trireme::train {

// Whether a run continues from a checkpoint in its folder, and what may differ then.
struct Resume {
  enum class From : uint8_t { start, newest, step };
  From from = From::start;
  int64_t step = 0;
  bool verifies = false;             // first runs the steps before it again, and compares bits
  bool allows_data_change = false;   // other data, split, order or sequence length
  bool allows_batch_change = false;  // another global batch
};

// Where a resumed run continues.
struct Resumed {
  int64_t step = 0;     // that was loaded
  int64_t samples = 0;  // that were consumed until then
  int64_t tokens = 0;   // that were trained on until then, in sequences of any length
  ckpt::Writer writer;  // the run that wrote the checkpoint
};

class RunCheckpoints {
 public:
  // `data` is DataSets::identity(). All references must outlive it. Takes memory for saves only
  // where checkpoint.enable is true or the run is to be resumed; `guard` is the first rank's.
  RunCheckpoints(const config::Config&, base::Json data, engine::Engine&, const spec::ModelSpec&,
                 Rank&, device::Device&, const Resume&, ckpt::Guard guard, CheckpointHooks hooks);

  // Runs steps [first, last] again, of samples shifted as TrainBatches has it.
  using RunSteps = std::function<void(int64_t first, int64_t last, int64_t shift)>;
  // Loads the checkpoint that is asked for; none: the run begins. Throws ConfigError where the run
  // would not continue the saved one, IoError, and Error where steps that were run again gave other
  // bits. Nothing on disk has changed then. Collective.
  std::optional<Resumed> resume(const RunSteps& run_steps);
  // After resume(): the run saves from here on. Collective.
  void begin(const Checkpointer::Begin&);

  bool saves() const { return saves_; }
  // Bytes on disk of one checkpoint, all ranks together; 0: the run does not save. Computed as the
  // writer lays its files out. REQUIRES: before begin(). Collective.
  int64_t checkpoint_bytes();
  // At steps at which ranks settle: commits what is written, and says whether a save is due by the
  // first rank's clock. Collective.
  bool poll();
  void save(int64_t step);  // collective
  void finish();            // waits until all is durable. Collective
  SaveFigures figures() const { return checkpointer_ ? checkpointer_->figures() : SaveFigures{}; }
  // Host memory of this rank for saves, as predicted from the plan and as used. REQUIRES: after
  // finish().
  struct Memory {
    int64_t predicted_bytes = 0, measured_bytes = 0;
  };
  Memory memory() const;

 private:
  base::Json run_state(int64_t step) const;
  base::Json saved_state(int64_t step) const;
  // Throws ConfigError where `loaded` is of another run; logs what else differs.
  void check(const Checkpointer::Loaded& loaded) const;
  // Throws ConfigError where steps run again cannot give the bits of `loaded`.
  void check_bits(const Checkpointer::Loaded& loaded) const;
  int64_t shift_after(const Checkpointer::Loaded&) const;
  void replay(const Checkpointer::Loaded& target, const RunSteps& run_steps);
  bool is_timed() const;
  double interval_seconds() const;  // REQUIRES: is_timed()

  const config::Config& config_;
  const base::Json data_;
  const spec::ModelSpec& model_;
  const spec::Plan& plan_;
  Rank& rank_;
  const Resume resume_;
  const bool saves_;
  const CheckpointHooks hooks_;
  std::unique_ptr<ckpt::Disk> disk_;
  std::optional<Checkpointer> checkpointer_;
  double saved_at_ = 0;  // when the last was begun
  int64_t shift_ = 0;    // offset of sample positions; see TrainBatches
  int64_t loaded_step_ = 0, loaded_tokens_ = 0;
};

}  // namespace trireme::train
