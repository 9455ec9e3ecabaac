// SPDX-License-Identifier: Apache-2.0
#include "engine/step/executor.h"

#include <algorithm>

#include "base/check.h"
#include "schedule/lives.h"
#include "spec/parallel/data_parallel.h"

namespace trireme::engine {
namespace {

using schedule::Action;
using schedule::Op;
using spec::PipeKind;

bool is_weight(Op op) { return op == Op::W || op == Op::BW; }
bool is_input(Op op) { return op == Op::B || op == Op::BW; }

Walk walk_of(Op op) {
  switch (op) {
    case Op::F:
      return Walk::forward;
    case Op::B:
      return Walk::backward_input;
    case Op::W:
      return Walk::backward_weight;
    case Op::BW:
      return Walk::backward;
    default:
      TRIREME_CHECK(false, "action {} is no computation", static_cast<int>(op));
  }
}

}  // namespace

Executor::Executor(const spec::Plan& plan, std::vector<std::unique_ptr<Stage>> stages, Pipe& pipe,
                   Buckets& buckets, const spec::StashLayout& layout, StepProgress& progress)
    : program_(plan.schedule.program[static_cast<size_t>(pipe.rank())]),
      lane_(plan.schedule.lanes.front()),
      stage_numbers_(schedule::stages_of(plan.schedule, pipe.rank())),
      stages_(std::move(stages)),
      pipe_(pipe),
      buckets_(buckets),
      layout_(layout),
      progress_(progress),
      ended_(program_.size()) {
  TRIREME_CHECK(stage_numbers_.size() == stages_.size(),
                "{} stages, the schedule has {} on this rank", stages_.size(),
                stage_numbers_.size());
  find_places(plan);
  find_frees();
}

// A leaf begins with its first F (for the head's gradients) and its first B or BW (for the others),
// and is complete after its last W or BW. The first F, W or BW overwrites weight gradients, the
// others add to them. If parameters stay gathered for the step, the stage's first action gathers
// them and the last action that reads them releases them.
void Executor::find_places(const spec::Plan& plan) {
  const auto kind_of = [](Op op) { return op == Op::BW ? Op::B : op; };
  std::map<std::tuple<int, Op, int, int>, size_t> first;  // by stage, kind and leaf
  std::map<std::tuple<int, int, int>, size_t> last;       // weight gradients, by stage and leaf
  std::map<int, size_t> last_reader;                      // by stage
  places_.resize(program_.size());
  for (size_t i = 0; i < program_.size(); ++i) {
    const Action& action = program_[i];
    if (action.microbatch < 0 || action.peer >= 0) continue;
    Place& place = places_[i];
    place.leaf = spec::leaf_of(plan, action.microbatch);
    const int stage = action.stage;
    const auto key = std::tuple(stage, kind_of(action.op), place.leaf.hosted, place.leaf.round);
    place.begins = first.try_emplace(key, i).second;
    place.writes = action.op == Op::F && place.begins;
    if (is_weight(action.op)) {
      const auto [found, is_first] = last.try_emplace({stage, place.leaf.hosted, place.leaf.round});
      found->second = i;
      place.writes = is_first;
    }
    if (!plan.layout.keeps_params()) continue;
    place.gathers = !last_reader.contains(stage);
    place.releases = false;
    if (action.op != Op::W) last_reader[stage] = i;
  }
  for (const auto& [key, i] : last) places_[i].completes = true;
  for (const auto& [stage, i] : last_reader) places_[i].releases = true;
}

void Executor::find_frees() {
  for (const Action& action : program_) {
    if (action.op != Op::RecvX && action.op != Op::RecvDy) continue;
    const spec::StashLayout::Frames& of = frames(action);
    const int behind = action.op == Op::RecvX ? of.input_free_behind : of.gradient_free_behind;
    if (behind >= 0) places_[static_cast<size_t>(behind)].frees = true;
  }
}

void Executor::run(device::Stream& compute, const InputStaging& inputs, nn::StepSink& sink) {
  step_began_ = compute.record();
  buckets_.table().begin_step();
  for (size_t i = 0; i < program_.size(); ++i) {
    const Action& action = program_[i];
    const device::Range range(compute, schedule::to_text(action));
    switch (action.op) {
      case Op::F:
      case Op::B:
      case Op::W:
      case Op::BW:
        if (action.with_next) {
          compute_pair(i++, compute, inputs, sink);
        } else {
          compute_at(i, compute, inputs, sink);
        }
        if (places_[i].frees) ended_[i] = compute.record();
        progress_.add_piece();
        break;
      case Op::SendY:
      case Op::SendDx:
        if (times_ != nullptr) times_->begin(i);
        pipe_.send(action.op == Op::SendY ? PipeKind::activations : PipeKind::gradients,
                   action.peer);
        break;
      case Op::RecvX:
      case Op::RecvDy:
        receive(i);
        break;
      case Op::ReduceGrads:  // scripts reduce each bucket as soon as it is complete
      case Op::SyncTied:     // with the reduction of the embedding
        break;
      case Op::R:
        TRIREME_CHECK(false, "check_plan() refuses early recompute");
    }
  }
  buckets_.await_reduced();
}

Task Executor::task_of(size_t position, const InputStaging& inputs) {
  const Action& action = program_[position];
  const Place& place = places_[position];
  return {.microbatch = action.microbatch,
          .batch = inputs.batch(action.microbatch),
          .leaf = place.leaf,
          .begins = place.begins,
          .completes = place.completes,
          .writes = place.writes,
          .gathers = place.gathers,
          .releases = place.releases};
}

Stage::Progress Executor::begin(size_t position, device::Stream& compute,
                                const InputStaging& inputs, nn::StepSink& sink) {
  const Action& action = program_[position];
  Task task = task_of(position, inputs);
  const Key key{action.stage, action.microbatch};
  if (action.op == Op::F) {
    if (const auto input = inputs_.extract(key)) {
      device::wait_for(compute, input.mapped(), device::Wait::pp);
    }
    const int next = action.stage + 1;
    if (next < static_cast<int>(lane_.size())) {
      task.out = index_of(next) >= 0 ? stage(next).input(action.microbatch)
                                     : pipe_.outgoing(PipeKind::activations, rank_of(next));
    }
  }
  if (is_input(action.op)) {
    if (const auto gradient = gradients_.extract(key)) {
      device::wait_for(compute, gradient.mapped(), device::Wait::pp);
    }
    const int before = action.stage - 1;
    if (before >= 0) {
      task.out = index_of(before) >= 0 ? stage(before).output_gradient(action.microbatch)
                                       : pipe_.outgoing(PipeKind::gradients, rank_of(before));
    }
  }
  return stage(action.stage).begin(walk_of(action.op), task, sink);
}

void Executor::compute_at(size_t position, device::Stream& compute, const InputStaging& inputs,
                          nn::StepSink& sink) {
  Stage::Progress progress = begin(position, compute, inputs, sink);
  if (times_ != nullptr) times_->begin(position);
  while (stage(program_[position].stage).advance(progress)) {
  }
  if (times_ != nullptr) times_->end(position);
}

// Alternates the steps of both scripts, so that one computes while the other waits.
void Executor::compute_pair(size_t position, device::Stream& compute, const InputStaging& inputs,
                            nn::StepSink& sink) {
  Stage& first = stage(program_[position].stage);
  Stage& second = stage(program_[position + 1].stage);
  Stage::Progress f = begin(position, compute, inputs, sink);
  Stage::Progress b = begin(position + 1, compute, inputs, sink);
  for (const size_t of : {position, position + 1}) {
    if (times_ != nullptr) times_->begin(of);
  }
  for (bool goes_on = true; goes_on;) {
    const bool went_first = first.advance(f);
    const bool went_second = second.advance(b);
    goes_on = went_first || went_second;
  }
  for (const size_t of : {position, position + 1}) {
    if (times_ != nullptr) times_->end(of);
  }
}

void Executor::receive(size_t position) {
  const Action& action = program_[position];
  if (times_ != nullptr) times_->begin(position);
  const spec::StashLayout::Frames& of = frames(action);
  const Key key{action.stage, action.microbatch};
  if (action.op == Op::RecvX) {
    inputs_[key] =
        pipe_.receive(PipeKind::activations, action.peer,
                      stage(action.stage).input(action.microbatch), end_of(of.input_free_behind));
  } else {
    gradients_[key] = pipe_.receive(PipeKind::gradients, action.peer,
                                    stage(action.stage).output_gradient(action.microbatch),
                                    end_of(of.gradient_free_behind));
  }
  if (times_ != nullptr) {
    times_->end(position,
                pipe_.stream(action.op == Op::RecvX ? PipeKind::activations : PipeKind::gradients,
                             action.peer));
  }
}

void Executor::evaluate(device::Stream& compute, const InputStaging& inputs, nn::StepSink& sink) {
  constexpr int microbatch = 0;
  pipe_.count_as_other(true);
  buckets_.table().begin_evaluation();
  for (size_t i = 0; i < stages_.size(); ++i) {
    const int number = stage_numbers_[i], next = number + 1;
    if (number > 0 && index_of(number - 1) < 0) {
      compute.wait(pipe_.receive(PipeKind::activations, rank_of(number - 1),
                                 stages_[i]->input(microbatch), compute.record()));
    }
    Task task{.microbatch = microbatch, .batch = inputs.batch(microbatch), .evaluates = true};
    const bool has_next = next < static_cast<int>(lane_.size());
    const bool sends = has_next && index_of(next) < 0;
    if (has_next) {
      task.out = sends ? pipe_.outgoing(PipeKind::activations, rank_of(next))
                       : stage(next).input(microbatch);
    }
    stages_[i]->run(Walk::forward, task, sink);
    if (sends) pipe_.send(PipeKind::activations, rank_of(next));
  }
  pipe_.count_as_other(false);
}

int Executor::index_of(int number) const {
  const auto found = std::find(stage_numbers_.begin(), stage_numbers_.end(), number);
  return found == stage_numbers_.end() ? -1 : static_cast<int>(found - stage_numbers_.begin());
}

Stage& Executor::stage(int number) {
  const int index = index_of(number);
  TRIREME_CHECK(index >= 0, "stage {} is not on this rank", number);
  return *stages_[static_cast<size_t>(index)];
}

const spec::StashLayout::Frames& Executor::frames(const Action& action) const {
  return layout_
      .frames[static_cast<size_t>(index_of(action.stage))][static_cast<size_t>(action.microbatch)];
}

const device::Event& Executor::end_of(int position) const {
  return position < 0 ? step_began_ : ended_[static_cast<size_t>(position)];
}

}  // namespace trireme::engine
