// SPDX-License-Identifier: Apache-2.0
#include "train/run/run.h"

#include <fmt/format.h>

#include "base/error.h"
#include "ckpt/generation/folder.h"
#include "obs/clock.h"

namespace trireme::train {
namespace {

int64_t sent_in_steps(const spec::TrafficTable& traffic) { return traffic.total() - traffic.other; }

}  // namespace

TrainSummary Run::go() {
  describe();
  resume();
  describe_plan();
  begin();
  if (position_.first_step > config_.training.steps) {
    log(fmt::format("nothing to do: the run is at step {}, training.steps is {}",
                    position_.first_step - 1, config_.training.steps));
  } else {
    run_steps();
  }
  finish();
  return summary_;
}

void Run::run_steps() {
  const int64_t first = position_.first_step;
  TrainBatches batches(parts_.data.train(), parts_.plan(), parts_.rank.coord(), first - 1,
                       position_.shift);
  const StepAgenda agenda(config_, first, parts_.data.validation() != nullptr);
  StepReporter reporter({.parts = parts_,
                         .clock = clock_,
                         .summary = summary_,
                         .output = output_ ? &*output_ : nullptr,
                         .log = [this](const std::string& text) { log(text); }},
                        position_);
  if (parts_.rank.is_first() && hooks_.begins) hooks_.begins(first - 1);
  for (int64_t step = first; step <= config_.training.steps; ++step) {
    queue_step(batches, step);
    summary_.steps = step;
    summary_.attempt_steps = step - first + 1;
    summary_.tokens += step_tokens(parts_.plan());
    summary_.total_tokens = position_.tokens_before + summary_.tokens;
    const StepActions actions = agenda.actions(step, exchanged_requests(agenda, step));
    act(step, actions, reporter);
    if (actions.is_last) break;
  }
  finish_trace();
}

void Run::queue_step(TrainBatches& batches, int64_t step) {
  engine::Engine& engine = parts_.engine;
  const bool is_traced = trace_.contains(step);
  if (is_traced) {
    clock_.wait(engine.compute());
    clock_.leave_out();  // slower than others
    trace_.begin_step(step);
  }
  clock_.begin_step();
  const int64_t sent_before = sent_in_steps(engine.traffic());
  engine.step(batches, optim::learning_rate(parts_.lr, step - 1));
  sent_bytes_ += sent_in_steps(engine.traffic()) - sent_before;
  clock_.end_step();
  data_seconds_ = batches.waited_seconds();
  if (is_traced) {
    trace_.end_step();
    clock_.wait(engine.compute());
    if (step == hooks_.trace.last) finish_trace();
  }
  if (!summary_.was_captured && engine.is_captured()) {
    summary_.was_captured = true;
    log(fmt::format("graph     step {} was captured as a graph; later steps replay it", step));
  }
}

void Run::finish_trace() {
  for (const std::string& line : trace_.finish()) log(line);
  summary_.picture = trace_.picture_file();
}

// Returns what was requested of any rank, at steps after which ranks exchange requests; at others
// nothing. Collective at the former.
StepRequests Run::exchanged_requests(const StepAgenda& agenda, int64_t step) {
  if (!agenda.exchanges_requests(step) && !signals_.is_due(step)) return {};
  if (!parts_.rank.is_alone()) clock_.wait(parts_.engine.compute());
  const Request request =
      signals_.exchange(parts_.rank, step, parts_.owner && parts_.owner->is_fenced());
  if (request.is_fenced) end_fenced();
  const bool is_save_time = checkpoints_.poll();
  return {.stop = request.stop, .save = request.save, .is_save_time = is_save_time};
}

void Run::act(int64_t step, const StepActions& actions, StepReporter& reporter) {
  summary_.was_stopped = actions.is_stopped;
  if (actions.waits()) clock_.wait(parts_.engine.compute());
  if (step == position_.first_step) {
    summary_.startup_seconds = obs::steady_seconds() - parts_.start_seconds;
    log(fmt::format("start-up  first step finished after {:.2f} s", summary_.startup_seconds));
  }
  if (actions.logs) reporter.log_step(step, data_seconds_);
  if (parts_.rank.is_first() && hooks_.progress) {
    hooks_.progress(step, fmt::format("loss {:.4f}", summary_.loss.value_or(0)));
  }
  if (actions.validates) reporter.log_validation(step);
  if (actions.saves) checkpoints_.save(step);
  if (actions.exports) {
    checkpoints_.finish();  // first the checkpoint that the run can be resumed from
    export_weights(ckpt::generation_name(step));
  }
  if (actions.is_stopped) log(fmt::format("stop requested: step {} is finished", step));
}

void Run::end_fenced() {
  // Throws, with the name of the process that took over.
  if (parts_.owner) parts_.owner->guarded([] {});
  throw base::Fenced(
      fmt::format("{}: another process has taken the run's folder over", config_.job.dump_folder));
}

}  // namespace trireme::train
