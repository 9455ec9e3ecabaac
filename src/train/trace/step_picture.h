// SPDX-License-Identifier: Apache-2.0
// StepPicture: traced steps as a picture of the pipeline: the measured time of every action of
// every stage, and beside it the same schedule, simulated with the mean cost of each stage's
// actions. It shows the pipeline that the first rank belongs to.
#pragma once

#include <filesystem>
#include <vector>

#include "base/text/json_fwd.h"
#include "engine/engine.h"
#include "engine/step/action_times.h"
#include "sim/measured.h"
#include "train/setup/rank.h"

namespace trireme::train {

class StepPicture {
 public:
  StepPicture(engine::Engine&, Rank&);
  ~StepPicture() { engine_.watch_actions(nullptr); }
  StepPicture(const StepPicture&) = delete;
  StepPicture& operator=(const StepPicture&) = delete;

  // Collective. A barrier at the beginning of a step is the origin of its times; the host waits at
  // the end of it.
  void begin_step(int64_t step);
  void end_step();

  // ---- on the first rank
  bool has_steps() const { return !drawn_.empty(); }
  // REQUIRES: has_steps(). Throws IoError.
  void write(const std::filesystem::path& file) const;
  // Returns the object of pipeline.json (docs/formats.md): planned and traced actions of each step,
  // in seconds since its begin.
  base::Json to_json() const;
  // Returns measured over simulated time of all traced steps, from the first action to the last.
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
