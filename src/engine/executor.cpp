// SPDX-License-Identifier: Apache-2.0
#include "engine/executor.h"

#include <algorithm>

#include "base/check.h"
#include "base/error.h"
#include "spec/data_parallel.h"

namespace trireme::engine {

using schedule::Action;
using schedule::Op;

Executor::Executor(const spec::Plan& plan, int rank, std::vector<Stage*> stages)
    : program_(plan.schedule.program[static_cast<size_t>(rank)]), stages_(std::move(stages)) {
  const schedule::Schedule& schedule = plan.schedule;
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
  find_places(plan);
}

// A leaf begins with its first F (gradients of the head) and its first B or BW (of all others), and
// is complete with its last W or BW.
void Executor::find_places(const spec::Plan& plan) {
  const auto is_weight = [](Op op) { return op == Op::W || op == Op::BW; };
  const auto kind_of = [](Op op) { return op == Op::BW ? Op::B : op; };
  places_.resize(program_.size());
  for (size_t i = 0; i < program_.size(); ++i) {
    const Action& action = program_[i];
    if (action.microbatch < 0) continue;
    Place& place = places_[i];
    place.leaf = spec::leaf_of(plan, action.microbatch);
    const auto is_same = [&](const Action& other) {
      return other.stage == action.stage && other.microbatch >= 0 &&
             spec::leaf_of(plan, other.microbatch) == place.leaf;
    };
    const auto here = program_.begin() + static_cast<std::ptrdiff_t>(i);
    place.begins = std::none_of(program_.begin(), here, [&](const Action& other) {
      return is_same(other) && kind_of(other.op) == kind_of(action.op);
    });
    place.completes =
        is_weight(action.op) && std::none_of(here + 1, program_.end(), [&](const Action& other) {
          return is_same(other) && is_weight(other.op);
        });
  }
}

void Executor::run(device::Stream& compute, const InputStaging& inputs, nn::StepSink& sink) {
  for (size_t i = 0; i < program_.size(); ++i) {
    const Action& action = program_[i];
    const device::Range range(compute, schedule::to_text(action));
    if (action.op == Op::ReduceGrads) {
      stage(action).buckets().await_reduced();
      continue;
    }
    // Both accumulators of a tied weight are on this stage, which adds them up when it reduces.
    if (action.op == Op::SyncTied) continue;
    const Task task{action.microbatch, inputs.batch(action.microbatch), places_[i].leaf,
                    places_[i].begins, places_[i].completes};
    switch (action.op) {
      case Op::F:
        stage(action).forward(task, sink);
        break;
      case Op::BW:
        stage(action).backward(task, sink);
        break;
      case Op::B:
        stage(action).backward_input(task, sink);
        break;
      case Op::W:
        stage(action).backward_weight(task, sink);
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
