// SPDX-License-Identifier: Apache-2.0
// StepPicture: traced steps as a picture of the pipeline: what every action of every stage took,
// and beside it the same schedule as the simulator plays it with the mean cost of each stage's
// actions. Of the ranks along pp that the first rank belongs to.
#pragma once

#include <filesystem>
#include <vector>

#include "engine/step/action_times.h"
#include "engine/engine.h"
#include "sim/measured.h"
#include "train/setup/rank.h"

namespace trireme::train {

class StepPicture {
 public:
  StepPicture(engine::Engine&, Rank&);
  ~StepPicture() { engine_.watch_actions(nullptr); }
  StepPicture(const StepPicture&) = delete;
  StepPicture& operator=(const StepPicture&) = delete;

  // Collective. Ranks meet at the beginning of a step, from where its times count; the host waits
  // at the end of it.
  void begin_step(int64_t step);
  void end_step();

  // ---- of the first rank
  bool has_steps() const { return !drawn_.empty(); }
  // REQUIRES: has_steps(). Throws IoError.
  void write(const std::filesystem::path& file) const;
  // Measured over simulated time of all traced steps, from the first action to the last.
  double ratio() const;

 private:
  struct Drawn {
    int64_t step = 0;
    sim::Timeline timeline;
  };
  sim::Result simulated(const Drawn&) const;

  engine::Engine& engine_;
  Rank& rank_;
  engine::ActionTimes times_;
  int64_t step_ = 0;
  std::vector<Drawn> drawn_;
};

}  // namespace trireme::train
