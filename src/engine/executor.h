// SPDX-License-Identifier: Apache-2.0
// Executor: walks one rank's program. It knows actions, and no schedule by name.
#pragma once

#include "engine/input.h"
#include "engine/stage.h"
#include "schedule/schedule.h"
#include "spec/plan.h"

namespace trireme::engine {

class Executor {
 public:
  // `rank` is along pp; `stages` are this rank's, in the order of their stage numbers. Throws
  // ConfigError when the program sends or receives: that needs a communicator.
  Executor(const spec::Plan&, int rank, std::vector<Stage*> stages);

  // Queues all actions of one step on `compute`. Gradients are complete and reduced afterwards; the
  // sink gets loss and token count of this rank's micro-batches.
  void run(device::Stream& compute, const InputStaging&, nn::StepSink&);

 private:
  // Where an action stands among those of its leaf.
  struct Place {
    spec::Leaf leaf;
    bool begins = false, completes = false;
  };

  void find_places(const spec::Plan&);
  Stage& stage(const schedule::Action&);

  std::vector<schedule::Action> program_;
  std::vector<Place> places_;  // by action
  std::vector<int> stage_numbers_;
  std::vector<Stage*> stages_;
};

}  // namespace trireme::engine
