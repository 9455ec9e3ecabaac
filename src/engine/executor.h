// SPDX-License-Identifier: Apache-2.0
// Executor: walks one rank's program. It knows actions, and no schedule by name.
#pragma once

#include "engine/input.h"
#include "engine/stage.h"
#include "schedule/schedule.h"

namespace trireme::engine {

class Executor {
 public:
  // `stages` are this rank's, in the order of their stage numbers. Throws ConfigError when the
  // program sends or receives: that needs a communicator.
  Executor(const schedule::Schedule&, int rank, std::vector<Stage*> stages);

  // Queues all actions of one step on `compute`. Gradients are added to; the sink gets loss and
  // token count.
  void run(device::Stream& compute, const InputStaging&, nn::StepSink&);

 private:
  Stage& stage(const schedule::Action&);

  std::vector<schedule::Action> program_;
  std::vector<int> stage_numbers_;
  std::vector<Stage*> stages_;
};

}  // namespace trireme::engine
