// SPDX-License-Identifier: Apache-2.0
#include "engine/executor.h"

#include <algorithm>

#include "base/check.h"
#include "base/error.h"

namespace trireme::engine {

using schedule::Action;
using schedule::Op;

Executor::Executor(const schedule::Schedule& schedule, int rank, std::vector<Stage*> stages)
    : program_(schedule.program[static_cast<size_t>(rank)]), stages_(std::move(stages)) {
  for (int stage = 0; stage < schedule.stages(); ++stage) {
    for (const schedule::Lane& lane : schedule.lanes) {
      if (lane[static_cast<size_t>(stage)] == rank) stage_numbers_.push_back(stage);
    }
  }
  TRIREME_CHECK(stage_numbers_.size() == stages_.size(), "{} stages for {} of the schedule",
                stages_.size(), stage_numbers_.size());
  for (const Action& action : program_) {
    if (action.peer >= 0) {
      throw base::ConfigError(fmt::format(
          "the schedule sends to or receives from rank {}, but this build runs one pipeline rank",
          action.peer));
    }
    if (action.op == Op::R) {
      throw base::ConfigError(
          "the schedule recomputes a whole stage early (R); this build recomputes layer by layer");
    }
  }
}

void Executor::run(device::Stream& compute, const InputStaging& inputs, nn::StepSink& sink) {
  for (const Action& action : program_) {
    const int m = action.microbatch;
    const device::Range range(compute, schedule::to_text(action));
    switch (action.op) {
      case Op::F:
        stage(action).forward(compute, m, inputs.batch(m), sink);
        break;
      case Op::BW:
        stage(action).backward(compute, m, inputs.batch(m), sink);
        break;
      case Op::B:
        stage(action).backward_input(compute, m, inputs.batch(m), sink);
        break;
      case Op::W:
        stage(action).backward_weight(compute, m, inputs.batch(m), sink);
        break;
      case Op::ReduceGrads:
        break;  // one rank holds the whole sum already
      case Op::SyncTied:
        stage(action).sync_tied(compute);
        break;
      default:
        TRIREME_CHECK(false, "action {} was refused at construction", static_cast<int>(action.op));
    }
  }
}

Stage& Executor::stage(const Action& action) {
  const auto found = std::find(stage_numbers_.begin(), stage_numbers_.end(), action.stage);
  TRIREME_CHECK(found != stage_numbers_.end(), "stage {} is not on this rank", action.stage);
  return *stages_[static_cast<size_t>(found - stage_numbers_.begin())];
}

}  // namespace trireme::engine
