// SPDX-License-Identifier: Apache-2.0
#include "train/run/run.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "base/check.h"
#include "base/error.h"
#include "base/log.h"
#include "base/system/rank_activity.h"
#include "ckpt/generation/folder.h"
#include "comm/mesh.h"
#include "engine/step/signal_ring.h"
#include "obs/clock.h"
#include "obs/terminal/number_text.h"
#include "spec/experts/expert_rows.h"
#include "spec/facts/facts.h"
#include "spec/parallel/data_parallel.h"
#include "train/record/ending.h"
#include "train/record/stragglers.h"
#include "train/signals/rank_table.h"

namespace trireme::train {
namespace {

std::vector<engine::StepSignals> signals_of(engine::Engine& engine, bool waits) {
  return waits ? engine.drain_signals() : engine.take_signals();
}

std::vector<std::string> layer_names(const spec::ModelSpec& model) {
  std::vector<std::string> names;
  for (size_t layer = 0; layer < model.layers.size(); ++layer) {
    names.push_back(spec::name_of_layer(model, static_cast<int>(layer)));
  }
  return names;
}

int64_t sent_in_steps(const spec::TrafficTable& traffic) { return traffic.total() - traffic.other; }

}  // namespace

TrainSummary Run::go() {
  try {
    while (!run_epoch()) {
    }
  } catch (const base::Diverged& error) {
    bench_.run_log.fails(error.what(), "diverged");
    mark_divergence();
    throw;
  } catch (const std::exception& error) {
    bench_.run_log.fails(error.what());
    throw;
  }
  const Ending ending = ending_of(summary_);
  const std::string_view reason = reason_of(ending);
  bench_.run_log.ends(std::string(reason),
                      ending.problem.empty()
                          ? fmt::format("{} at step {}", reason, obs::grouped(summary_.steps))
                          : ending.problem);
  return summary_;
}

void Run::run_attempt() {
  describe();
  check_trace();
  resume();
  describe_plan();
  begin();
  recover_lines();
  if (timeline_.step() >= config_.training.steps) {
    log(fmt::format("nothing to do: the run is at step {}, training.steps is {}", timeline_.step(),
                    config_.training.steps));
  } else {
    run_steps();
  }
  phases().change(obs::Phase::closing);
  finish();
}

void Run::run_steps() {
  const int64_t first = epoch_first_step_;
  const StepAgenda agenda(config_, first, bench_.data.validations() > 0);
  StepReporter reporter({.parts = *parts_,
                         .clock = clock_,
                         .summary = summary_,
                         .output = output_ ? &*output_ : nullptr,
                         .log = [this](const std::string& text) { log(text); }},
                        timeline_);
  if (parts_->rank.is_first() && hooks_.begins) hooks_.begins(first - 1);
  if (output_) output_->begin_layers(layer_names(bench_.model));
  if (output_) numerics_.begin(*output_);
  TRIREME_CHECK(numerics_.blocks() == parts_->bf16_blocks,
                "the engine was built for {} blocks in bf16, the checkpoint has {}",
                parts_->bf16_blocks.size(), numerics_.blocks().size());
  (void)signals_of(*parts_->engine, true);  // of steps that were replayed
  for (std::optional<int64_t> step = first; step && *step <= config_.training.steps;) {
    enter_leg_of(*step);
    step = run_leg(agenda, reporter, *step);
  }
  finish_trace();
}

void Run::enter_leg_of(int64_t step) {
  const Leg& leg = bench_.data.leg_at(step);
  if (&leg != parts_->leg) {
    const obs::PhaseClock::Scope scope(phases(), obs::Phase::warmup);
    log(
        fmt::format("phase     {} from step {} on: seq_len {}, {} sequences a step; the engine is "
                    "rebuilt",
                    leg.name, step, leg.seq_len, leg.global_batch_size));
    release_engine();
    parts_->change_leg(leg);
    use_engine();
    bench_.run_log.add(
        {.kind = obs::EventKind::replan,
         .step = step - 1,
         .text = fmt::format("{} from step {} on: the engine was rebuilt", leg.name, step),
         .data = {{"seq_len", leg.seq_len}, {"global_batch_size", leg.global_batch_size}}});
  }
  const bool is_traced =
      hooks_.trace.first >= leg.first_step && hooks_.trace.first <= leg.last_step;
  parts_->trace.emplace(is_traced ? hooks_.trace : TraceSteps{}, *parts_->engine, parts_->rank);
  if (output_) parts_->trace->open(output_->folder());
  if (is_traced) summary_.trace = parts_->trace->trace_file();
  if (is_traced) summary_.picture = parts_->trace->picture_file();
}

void Run::release_engine() {
  predicted_sent_bytes_ += predicted_sent_bytes();
  finish_trace();
  parts_->trace.reset();
  parts_->checkpoints->release_engine();
  record_steps(true);
}

void Run::use_engine() {
  timeline_.engine_replaced();
  parts_->checkpoints->use_engine(*parts_->engine);
  clock_.forget_laps();
}

void Run::change_precision(const std::vector<int>& bf16_blocks) {
  const obs::PhaseClock::Scope scope(phases(), obs::Phase::warmup);
  release_engine();
  const std::string problem = parts_->change_precision(bf16_blocks);
  use_engine();
  numerics_.changed(timeline_.step(), problem);
}

std::optional<int64_t> Run::run_leg(const StepAgenda& agenda, StepReporter& reporter,
                                    int64_t first) {
  const Leg& leg = *parts_->leg;
  const int64_t last = std::min(leg.last_step, config_.training.steps);
  TrainBatches batches(bench_.data.train(leg.seq_len), parts_->plan(), parts_->rank.coord(),
                       first - 1, leg.shift + timeline_.shift());
  const double data_seconds = data_seconds_;
  for (int64_t step = first; step <= last; ++step) {
    const bool has_transfers =
        parts_->plan().mesh[spec::Axis::cp] * parts_->plan().mesh[spec::Axis::ep] > 1;
    // Transfers of a step that may be logged are measured.
    parts_->sampler->before_step(*parts_->engine, step,
                                 has_transfers && agenda.exchanges_requests(step));
    phases().change(step == first ? obs::Phase::warmup : bench_.run_log.phase_of(step));
    base::RankActivity::current().set_step(step);
    numerics_.before_step(step);
    if (plant_) plant_->apply(*parts_->engine, step);
    queue_step(batches, step);
    bench_.run_log.waited_for_data(data_seconds + batches.waited_seconds() - data_seconds_);
    data_seconds_ = data_seconds + batches.waited_seconds();
    take_signals();
    if (step == epoch_first_step_) check_first_batch(batches.first_content_hash(), step);
    if (step == first) clock_.leave_out();  // it warms up
    const StepActions actions = agenda.actions(step, exchanged_requests(agenda, step));
    const bool copies = !actions.is_last && parts_->checkpoints->copies_at(step);
    if (actions.waits() || actions.saves || actions.is_last || copies || step == last) {
      if (const std::optional<Overflow> found = overflow()) {
        enlarge_budget(*found);
        return found->from;
      }
    }
    std::optional<std::vector<int>> bf16_blocks;
    if (numerics_.is_due(step)) {
      clock_.wait(parts_->engine->compute());
      bf16_blocks = numerics_.after_step(step, output_ ? &*output_ : nullptr);
    }
    act(step, actions, reporter, batches);
    if (actions.is_last) return std::nullopt;
    if (copies) {
      // A run that goes on from the copy does not make these steps again.
      take_signals();
      if (output_) output_->write_steps(true);
      copy_state(step, bf16_blocks.value_or(parts_->bf16_blocks));
    }
    if (bf16_blocks) {
      change_precision(*bf16_blocks);
      return step + 1;
    }
  }
  clock_.wait(parts_->engine->compute());
  record_steps();
  return last + 1;
}

void Run::take_signals(bool waits) {
  // A host that is far ahead of the device waits for it before signals are dropped.
  constexpr int64_t max_ahead = engine::SignalRing::slots - 8;
  const bool is_far_ahead = timeline_.untaken_signals() >= max_ahead;
  for (const engine::StepSignals& signals : signals_of(*parts_->engine, waits || is_far_ahead)) {
    timeline_.take_signal(signals.index);
    if (signals.overflow > 0) continue;  // it was not run, and will be repeated
    const int64_t step = timeline_.step_of_signal(signals.index);
    if (output_) {
      record_recovery(step, output_->add_step(step, signals, timeline_.tokens_at(step)));
    }
    bench_.run_log.add_step(step, signals);
    recent_.add(step, signals);
    compare_repeated(step, signals);
    if (marks_) marks_->end_step(step, bench_.run_log.take_alarm());
  }
}

void Run::compare_repeated(int64_t step, const engine::StepSignals& signals) {
  RepeatedSteps::Result result{.loss = signals.mean_loss,
                               .grad_norm = signals.grad_norm,
                               .tokens = signals.tokens,
                               .samples = {}};
  // A step that was aborted while it was queued has none.
  if (const auto own = consumed_.find(step); own != consumed_.end()) result.samples = own->second;
  consumed_.erase(consumed_.begin(), consumed_.upper_bound(step));
  const auto difference = repeated_.add(step, result);
  if (!difference) return;
  if (difference->is_in_samples && !parts_->rank.is_first()) {
    base::log_warning("rank {}: {}", start_.number, difference->text);
    other_samples_step_ = step;
  }
  const bool is_certain = difference->is_in_samples || repeated_.is_exact();
  record_difference(step, difference->text,
                    is_certain ? obs::Severity::error : obs::Severity::warning);
}

void Run::record_difference(int64_t step, const std::string& text, obs::Severity severity) {
  if (!parts_->rank.is_first()) return;
  log("warning   " + text);
  bench_.run_log.add({.kind = obs::EventKind::hardware,
                      .step = step,
                      .severity = severity,
                      .text = text,
                      .data = {{"what", "repeated_step"}}});
}

void Run::record_steps(bool waits) {
  take_signals(waits);
  if (output_) output_->write_steps(waits);
}

std::optional<Run::Overflow> Run::overflow() {
  if (!parts_->may_overflow()) return std::nullopt;
  clock_.wait(parts_->engine->compute());
  const engine::StepReport report = parts_->engine->report();
  if (report.overflow == 0) return std::nullopt;
  // Steps that count as run end before the one with the overflow.
  const int64_t from = timeline_.step_of_count(report.applied + report.skipped) + 1;
  return Overflow{.from = std::min(from, timeline_.step()), .rows = report.overflow};
}

void Run::enlarge_budget(const Overflow& overflow) {
  const auto [from, rows] = overflow;
  const int64_t step = timeline_.step();
  constexpr double growth = 1.5;
  const spec::MoeSpec& moe = *spec::moe_of(bench_.model);
  const double largest = spec::largest_row_budget(moe, parts_->plan().mesh[spec::Axis::ep]);
  const double budget = std::min(growth * parts_->row_budget, largest);
  log(
      fmt::format("experts   step {} was not applied: {} rows exceeded the row budget of {:.3g}; "
                  "the engine is rebuilt with {:.3g}, and the step is repeated",
                  from, rows, parts_->row_budget, budget));
  const obs::PhaseClock::Scope scope(phases(), obs::Phase::warmup);
  release_engine();
  bench_.run_log.repeats_until(step);
  bench_.run_log.add({.kind = obs::EventKind::replan,
                      .step = from,
                      .severity = obs::Severity::warning,
                      .text = fmt::format(
                          "step {} was not applied: {} rows exceeded the row budget of {:.3g}; the "
                          "engine is rebuilt with {:.3g}",
                          from, rows, parts_->row_budget, budget),
                      .data = {{"row_budget", budget}, {"repeated_steps", step - from + 1}}});
  try {
    parts_->change_row_budget(budget);
  } catch (const base::OutOfMemory& error) {
    throw base::OutOfMemory(fmt::format(
        "step {}: tokens exceeded the experts' row budget, and a larger one does not fit; use "
        "moe.overflow = \"drop\", a smaller micro-batch, or resume with another layout\n{}",
        from, error.what()));
  }
  use_engine();
  timeline_.go_back(from);
  signals_.go_back(from);
}

// Compares the content of the first batch on ranks that must have the same one, and logs the sum
// over all: the same for every layout, and for every attempt that begins with this step.
void Run::check_first_batch(uint64_t own_hash, int64_t step) {
  const std::vector<uint64_t> hashes = parts_->rank.gather(own_hash);
  std::map<int64_t, uint64_t> by_data_rank;
  for (size_t rank = 0; rank < hashes.size(); ++rank) {
    const spec::Sizes& mesh = parts_->plan().mesh;
    const int64_t data_rank = spec::data_rank(mesh, comm::coord_of(mesh, static_cast<int>(rank)));
    const auto [same, is_new] = by_data_rank.emplace(data_rank, hashes[rank]);
    if (is_new || same->second == hashes[rank]) continue;
    throw base::Error(fmt::format(
        "step {}: rank {} read another batch than the ranks with which it shares its samples: the "
        "hash of its tokens and labels is {:016x}, theirs is {:016x}; check that all hosts have "
        "the same data files",
        step, rank, hashes[rank], same->second));
  }
  uint64_t sum = 0;
  for (const auto& [data_rank, hash] : by_data_rank) sum += hash;
  if (step == timeline_.first_step()) summary_.first_batch_hash = sum;
  log(fmt::format("batch     tokens and labels of step {} have the hash {:016x}", step, sum));
}

double Run::learning_rate(int64_t step) const {
  const double scheduled = optim::learning_rate(bench_.lr, step - 1);
  const data::Phases& phases = bench_.data.phases();
  if (phases.table().size() == 1) return scheduled;
  const auto phase = static_cast<size_t>(phases.at_step(step - 1).phase);
  return phases.table()[phase].options.learning_rate_of(scheduled);
}

void Run::queue_step(TrainBatches& batches, int64_t step) {
  engine::Engine& engine = *parts_->engine;
  const bool is_traced = parts_->trace->contains(step);
  if (is_traced) {
    clock_.wait(engine.compute());
    clock_.leave_out();  // slower than others
    engine.watch_times(false);
    parts_->trace->begin_step(step);
  }
  clock_.begin_step();
  const int64_t sent_before = sent_in_steps(engine.traffic());
  {
    const bool warms_up = phases().current() == obs::Phase::warmup;
    const base::ActivityPhaseScope activity(warms_up ? base::warm_up_phase : base::step_phase);
    engine.step(batches, learning_rate(step));
  }
  timeline_.advance();
  consumed_[step] = batches.step_hash();
  sent_bytes_ += sent_in_steps(engine.traffic()) - sent_before;
  clock_.end_step();
  parts_->sampler->after_step(engine);
  if (is_traced) {
    engine.watch_times(true);
    parts_->trace->end_step();
    clock_.wait(engine.compute());
    if (step == hooks_.trace.last) finish_trace();
  }
  if (!summary_.was_captured && engine.is_captured()) {
    summary_.was_captured = true;
    log(fmt::format("graph     step {} was captured as a graph; later steps replay it", step));
  }
}

void Run::finish_trace() {
  if (!parts_->trace || !parts_->trace->is_on()) return;
  for (const std::string& line : parts_->trace->finish()) log(line);
  summary_.picture = parts_->trace->picture_file();
}

// Returns what was requested of any rank, at steps after which ranks exchange requests; at others
// nothing. Collective at the former.
StepRequests Run::exchanged_requests(const StepAgenda& agenda, int64_t step) {
  if (!agenda.exchanges_requests(step) && !signals_.is_due(step)) return {};
  if (!parts_->rank.is_alone()) clock_.wait(parts_->engine->compute());
  std::optional<obs::RankSample> sample;
  if (parts_->sampler->is_due(step, step == config_.training.steps)) {
    sample = parts_->sampler->sample(
        *parts_->engine, step,
        {.data = data_seconds_, .save = parts_->checkpoints->figures().stall_seconds});
  }
  const Noticed noticed{.is_fenced = bench_.owner && bench_.owner->is_fenced(),
                        .other_samples_step = std::exchange(other_samples_step_, 0)};
  const Request request =
      signals_.exchange(parts_->rank, step, noticed, sample ? &*sample : nullptr);
  if (request.is_fenced) end_fenced();
  if (request.other_samples_step > 0 && request.other_samples_rank > 0) {
    record_difference(request.other_samples_step,
                      fmt::format("rank {}: step {} was repeated with other samples (corruption?)",
                                  request.other_samples_rank, request.other_samples_step),
                      obs::Severity::error);
  }
  record_ranks(step);
  bench_.run_log.flush();
  const obs::PhaseClock::Scope scope(phases(), obs::Phase::exposed_save);
  const bool is_save_time = parts_->checkpoints->poll();
  return {.stop = request.stop, .save = request.save, .is_save_time = is_save_time};
}

void Run::record_ranks(int64_t step) {
  const std::span<obs::RankSample> samples = signals_.samples();
  const bool is_measured = std::ranges::all_of(
      samples, [](const auto& sample) { return sample[obs::RankColumn::steps] > 0; });
  if (samples.empty() || !is_measured || !parts_->rank.is_first()) return;
  complete_samples(parts_->plan().mesh, samples);
  if (output_) output_->add_ranks(step, rank_table_values(samples));
  const auto steps = static_cast<double>(step - std::max(sampled_step_, timeline_.first_step()));
  bench_.run_log.waited_for_ranks(steps * straggler_seconds(parts_->plan().mesh, samples));
  sampled_step_ = step;
  if (hooks_.sampled) hooks_.sampled(step, samples);
}

void Run::act(int64_t step, const StepActions& actions, StepReporter& reporter,
              const TrainBatches& batches) {
  summary_.was_stopped = actions.is_stopped;
  if (actions.waits()) clock_.wait(parts_->engine->compute());
  take_signals();
  if (step == timeline_.first_step()) {
    summary_.startup_seconds = obs::steady_seconds() - bench_.start_seconds;
    log(fmt::format("start-up  first step finished after {:.2f} s", summary_.startup_seconds));
  }
  if (actions.logs) reporter.log_step(step, data_seconds_, batches);
  if (output_) output_->write_steps(false);
  if (parts_->rank.is_first() && hooks_.progress) {
    hooks_.progress(step, fmt::format("loss {:.4f}", summary_.loss.value_or(0)));
  }
  const double pause = obs::steady_seconds();
  if (actions.validates) validate(step, reporter);
  if (actions.saves) {
    const obs::PhaseClock::Scope scope(phases(), obs::Phase::exposed_save);
    // The batches of all steps until this one have been read: none of them was of other data.
    reporter.check_data();
    parts_->checkpoints->save(step);
  }
  if (actions.exports) {
    parts_->engine->interrupt_times();
    const obs::PhaseClock::Scope scope(phases(), obs::Phase::exposed_save);
    parts_->checkpoints->finish();  // first the checkpoint that the run can be resumed from
    export_weights(ckpt::generation_name(step));
  }
  const bool has_paused = actions.validates || actions.saves || actions.exports;
  if (has_paused && parts_->rank.is_first() && hooks_.paused) {
    hooks_.paused(obs::steady_seconds() - pause);
  }
  if (actions.is_stopped) {
    log(fmt::format("stop requested: step {} is finished", step));
    bench_.run_log.add({.kind = obs::EventKind::preempt,
                        .step = step,
                        .text = fmt::format("a stop was requested; step {} is the last", step)});
  }
}

void Run::copy_state(int64_t step, const std::vector<int>& bf16_blocks) {
  clock_.wait(parts_->engine->compute());
  const obs::PhaseClock::Scope scope(phases(), obs::Phase::exposed_save);
  const int64_t steps = step - epoch_first_step_ + 1;
  const double step_seconds = (clock_.seconds() - epoch_seconds_) / static_cast<double>(steps);
  parts_->checkpoints->copy({.step = step,
                             .samples = timeline_.samples_at(step),
                             .tokens = timeline_.tokens_at(step),
                             .row_budget = parts_->row_budget},
                            bf16_blocks, step_seconds);
  numerics_.copied(step);
}

void Run::validate(int64_t step, StepReporter& reporter) {
  const obs::PhaseClock::Scope scope(phases(), obs::Phase::validation);
  reporter.log_validation(step);
  const double loss = summary_.validation_loss.value_or(0);
  base::Json data = {{"loss", loss}};
  if (!std::isfinite(loss)) data["loss"] = "NaN";
  bench_.run_log.add({.kind = obs::EventKind::validation,
                      .step = step,
                      .text = fmt::format("validation loss {:.4f} at step {}", loss, step),
                      .data = std::move(data)});
}

void Run::end_fenced() {
  // Throws, with the name of the process that took over.
  if (bench_.owner) bench_.owner->guarded([] {});
  throw base::Fenced(
      fmt::format("{}: another process has taken the run's folder over", config_.job.dump_folder));
}

}  // namespace trireme::train
