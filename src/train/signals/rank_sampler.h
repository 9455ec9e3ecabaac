// SPDX-License-Identifier: Apache-2.0
// RankSampler: what this rank reports about the steps since its last sample: times of the compute
// stream, waits of the host, memory, processor time and hardware counters. It never waits for the
// device. The first rank completes the samples of all ranks (rank_table.h) and writes them.
#pragma once

#include <cstdint>
#include <optional>

#include "engine/engine.h"
#include "obs/files/rank_columns.h"
#include "spec/model.h"
#include "train/setup/ranks.h"
#include "train/setup/setup.h"
#include "train/signals/hardware_watch.h"

namespace trireme::train {

class RankSampler {
 public:
  struct Parts {
    const spec::ModelSpec& model;
    const Platform& platform;
    const RankStart& start;
    const HardwareWatch* hardware = nullptr;  // null: not watched
    int64_t steps = 20;                       // metrics.ranks_freq
  };
  explicit RankSampler(const Parts&);

  // Calls that precede and follow a step; the same on all ranks. On a CPU the waits of every step
  // are measured, on a GPU those of one step in `steps`, and of those that the caller asks for.
  void before_step(engine::Engine&, int64_t step, bool measures_waits);
  void after_step(const engine::Engine&);
  // True if ranks take a sample when they exchange signals after this step. After the last one they
  // take it if there is none yet, or if it has enough steps to mean something.
  bool is_due(int64_t step, bool is_last) const {
    const int64_t steps = step - sampled_step_;
    return steps >= parts_.steps || (is_last && (!has_sampled_ || 2 * steps >= parts_.steps));
  }

  // Seconds so far in which the host waited.
  struct HostWaits {
    double data = 0;  // for batches
    double save = 0;  // in checkpoints
  };
  // Returns the sample since the last one. Its column `steps` is 0 if no step is complete whose
  // waits were measured; the sample is then to be taken again after a later step. Columns that the
  // first rank computes are 0; `work` is the work itself.
  obs::RankSample sample(engine::Engine&, int64_t step, const HostWaits&);

 private:
  struct Usage {  // of the process
    double wall_seconds = 0, cpu_seconds = 0;
  };
  static Usage usage_now();

  const Parts parts_;
  const double token_flops_, pair_flops_;
  int64_t first_step_ = -1, sampled_step_ = 0;
  bool has_sampled_ = false;
  engine::StepTimes times_;  // not sampled yet
  double work_ = 0;          // of the steps since the last sample, in FLOPs without recompute
  int64_t queued_steps_ = 0;
  HostWaits waits_;  // at the last sample
  Usage usage_;
};

// Returns the resident memory of this process; 0 if the system does not tell.
int64_t resident_bytes();

}  // namespace trireme::train
