// SPDX-License-Identifier: Apache-2.0
// Run: from one epoch to the next, in the same process.
#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/log.h"
#include "comm/failure/verdict.h"
#include "obs/clock.h"
#include "train/run/run.h"

namespace trireme::train {

bool Run::run_epoch() {
  try {
    if (!parts_) {
      parts_.emplace(bench_, start_, kept_);
      equip();
    }
    run_attempt();
    parts_->close();
    return true;
  } catch (const base::CommAborted&) {
    if (!leave_epoch()) throw;
    return false;
  }
}

bool Run::leave_epoch() {
  if (!start_.next_epoch) return false;
  if (parts_) {
    predicted_sent_bytes_ += predicted_sent_bytes();
    summary_.checkpoints = parts_->checkpoints->figures();
    summary_.copies = parts_->checkpoints->copy_figures();
    if (std::exchange(has_state_, false)) kept_ = trusted_state();
    recorded_step_ = timeline_.step() - timeline_.untaken_signals();
    parts_.reset();
    bench_.platform.device->ledger().unfreeze();
    timeline_.engine_replaced();
    clock_.abandon();
  }
  recovery_.reset();
  left_at_ = obs::wall_seconds();
  const obs::PhaseClock::Scope scope(phases(), obs::Phase::restore);
  RankStart next;
  if (!start_.next_epoch(next)) return false;
  start_ = std::move(next);
  return true;
}

std::optional<KeptState> Run::trusted_state() {
  // Memory for saves goes before the copy is made.
  parts_->trace.reset();
  parts_->checkpoints.reset();
  try {
    const std::optional<int64_t> counted = parts_->engine->sealed_step();
    parts_->rank.close(comm::End::abort);  // until then a GPU throws the verdict
    if (!counted) return {};
    record_steps(true);
    const int64_t step = timeline_.step_of_count(*counted);
    // Updates that were completed after the abort belong to a step that has sent no signals.
    const int64_t signalled = timeline_.step() - timeline_.untaken_signals();
    if (step > signalled && !recent_.has(step)) {
      recent_.add(step, signals_of_state(parts_->engine->step_state()));
    }
    return KeptState{.point = {.step = step,
                               .samples = timeline_.samples_at(step),
                               .tokens = timeline_.tokens_at(step),
                               .row_budget = parts_->row_budget},
                     .bf16_blocks = parts_->bf16_blocks,
                     .state = take_state(*parts_->engine, bench_.model, parts_->rank.coord())};
  } catch (const base::Error& error) {
    base::log_warning("rank {}: its training state is lost with the epoch: {}", start_.number,
                      error.what());
    return {};
  }
}

void Run::continue_attempt(const std::optional<Resumed>& from) {
  const int64_t step = from ? from->step : 0;
  const int64_t last = timeline_.step();
  if (step + 1 < timeline_.first_step()) {
    timeline_.begin_after(step, from ? from->samples : 0, from ? from->tokens : 0);
  } else {
    while (timeline_.step() < step) timeline_.advance();  // which other ranks have finished
    timeline_.go_back(step + 1);
  }
  signals_.go_back(step + 1);
  sampled_step_ = std::min(sampled_step_, step);
  for (std::vector<obs::CurvePoint>* curve : {&summary_.loss_curve, &summary_.validation_curve}) {
    std::erase_if(
        *curve, [&](const obs::CurvePoint& point) { return point.x > static_cast<double>(step); });
  }
  bench_.run_log.repeats_until(recorded_step_);
  repeated_.begin();
  const int64_t repeated = std::max<int64_t>(0, last - step);
  record_epoch(step, fmt::format("{} steps are repeated", repeated), repeated);
}

void Run::recover_lines() {
  if (start_.epoch == 0 || !start_.next_epoch) return;
  int64_t written = 0;
  if (output_) {
    output_->write_steps(true);
    written = last_recorded_step(output_->folder());
  }
  written = parts_->rank.gather(written).front();
  const int64_t done = timeline_.step();
  if (written >= done) return;
  const std::vector<std::string> texts = parts_->rank.gather_texts(recent_.text(written + 1, done));
  if (!output_) return;
  std::map<int64_t, engine::StepSignals> steps;
  for (const std::string& text : texts) steps.merge(steps_in(text));
  for (const auto& [step, signals] : steps) {
    (void)output_->add_step(step, signals, timeline_.tokens_at(step));
  }
  output_->write_steps(true);
  const int64_t missing = done - written - std::ssize(steps);
  if (missing > 0) {
    base::log_warning("metrics.jsonl lacks {} of the steps {} to {}: no rank that lives has them",
                      missing, written + 1, done);
  }
}

void Run::record_epoch(int64_t step, const std::string& what, int64_t repeated) {
  std::string text = fmt::format("epoch {} continues after step {} from {}; {}", start_.epoch, step,
                                 name_of(source_), what);
  if (!fetched_.empty()) {
    text += fmt::format("; {} from copies on other nodes", comm::ranks_text(fetched_));
  }
  log("epoch     " + text);
  bench_.run_log.add({.kind = obs::EventKind::replan,
                      .step = step,
                      .severity = obs::Severity::warning,
                      .text = text,
                      .data = {{"epoch", start_.epoch}, {"repeated_steps", repeated}}});
}

void Run::begin_recovery() {
  if (start_.epoch == 0 || !start_.next_epoch) return;
  const double restored_at = obs::wall_seconds();
  const std::vector<EpochMarks> marks = parts_->rank.gather(
      EpochMarks{.left_at = left_at_, .up_at = start_.up_at, .step = recorded_step_});
  if (!parts_->rank.is_first()) return;
  recovery_ = epoch_entry(marks, parts_->connected_at, restored_at);
  recovery_->reached = std::max(recovery_->reached, timeline_.step());
}

void Run::record_recovery(int64_t step, double finished_at) {
  if (!recovery_ || step <= recovery_->reached) return;
  const EpochEntry entry = *std::exchange(recovery_, std::nullopt);
  const std::optional<Loss> loss = loss_of_epoch(config_.job.dump_folder, start_.epoch - 1);
  if (!loss) return;
  const RecoveryTimes times = recovery_times(*loss, entry, finished_at);
  base::Json data = to_json(times);
  data.update({{"epoch", start_.epoch}, {"lost_at", loss->lost_at}, {"ranks", loss->ranks}});
  bench_.run_log.add({.kind = obs::EventKind::recovered,
                      .step = step,
                      .text = fmt::format("from the loss of {} to the first new step: {}",
                                          comm::ranks_text(loss->ranks), to_text(times)),
                      .data = std::move(data)});
}

}  // namespace trireme::train
