// SPDX-License-Identifier: Apache-2.0
// RunCheckpoints: when a run saves its state, what it keeps beside the tensors, and how it goes on
// from what was saved. Checkpointer does the saving.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "ckpt/disk.h"
#include "config/config.h"
#include "train/checkpointer.h"

namespace trireme::train {

// Whether a run goes on from a checkpoint in its folder.
struct Resume {
  enum class From : uint8_t { start, newest, step };
  From from = From::start;
  int64_t step = 0;
  bool verifies = false;  // first runs the steps before it again, and compares bits
};

class RunCheckpoints {
 public:
  // All but the configuration's own must outlive it. Takes memory for saves only where the
  // configuration wants some or the run is to be resumed.
  RunCheckpoints(const config::Config&, engine::Engine&, const spec::ModelSpec&, Rank&,
                 device::Device&, const Resume&, CheckpointHooks hooks);

  // The step that was loaded; none: the run begins. `run_steps` runs steps [first, last] again.
  // Throws ConfigError where the run would not go on as the saved one, IoError, and Error where
  // steps that were run again gave other bits. Nothing on disk has changed then. Collective.
  std::optional<int64_t> resume(const std::function<void(int64_t first, int64_t last)>& run_steps);

  bool saves() const { return saves_; }
  // At steps at which ranks settle: commits what is written, and says whether a save is due by the
  // first rank's clock. Collective.
  bool settle();
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
  // What must be the same for the next step to be the same.
  base::Json run_state(int64_t step) const;
  void check(const Checkpointer::Loaded&) const;
  void replay(const Checkpointer::Loaded& target,
              const std::function<void(int64_t first, int64_t last)>& run_steps);
  double interval_seconds() const;  // 0: steps alone count

  const config::Config& config_;
  const spec::ModelSpec& model_;
  const spec::Plan& plan_;
  Rank& rank_;
  const Resume resume_;
  const bool saves_;
  const CheckpointHooks hooks_;
  std::unique_ptr<ckpt::Disk> disk_;
  std::optional<Checkpointer> checkpointer_;
  double saved_at_ = 0;  // when the last was begun
};

}  // namespace trireme::train
