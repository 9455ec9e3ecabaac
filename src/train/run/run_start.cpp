// SPDX-License-Identifier: Apache-2.0
// Run: its construction, what it resumes from, and the first files that it writes.
#include <algorithm>
#include <filesystem>

#include "base/check.h"
#include "base/error.h"
#include "base/log.h"
#include "ckpt/disk/posix_disk.h"
#include "ckpt/generation/folder.h"
#include "obs/files/event_log.h"
#include "obs/terminal/number_text.h"
#include "spec/layout/layout.h"
#include "train/report/memory_table.h"
#include "train/run/run.h"
#include "train/run/run_work.h"
#include "train/run/validation.h"
#include "train/signals/rank_table.h"

namespace trireme::train {
namespace {

std::string saved_line(const SavedGeneration& saved) {
  return fmt::format(
      "saved     checkpoint of step {}: {} in {:.2f} s in the background, {:.2f} s waited",
      saved.step, obs::bytes_text(saved.bytes), saved.durable_seconds, saved.stall_seconds);
}

// "layout    tp 2 sp, dp 2 ZeRO-3, ...; gradients of 2 workers summed once a step"
std::string layout_line(const spec::Layout& layout) {
  const std::string line = "layout    " + spec::words(layout);
  if (layout.logical_dp == 1) return line;
  return line + fmt::format("; gradients of {} workers summed {}", layout.logical_dp,
                            layout.reduce == spec::ReduceWhen::each ? "after each micro-batch"
                                                                    : "once a step");
}

std::vector<std::string> copies_lines(const Incarnation& parts) {
  if (!parts.no_copies.empty()) {
    return {"copies    the state is not copied to memory that outlives its process: " +
            parts.no_copies};
  }
  if (!parts.copy_memory) return {};
  const config::Elastic& elastic = parts.bench.config.elastic;
  const std::string pace =
      elastic.peer_interval > 0
          ? fmt::format("every {} steps", elastic.peer_interval)
          : fmt::format("as often as {:.3g} of the time of steps allows", elastic.peer_cost);
  std::vector<std::string> lines = {
      fmt::format("copies    {} of the host on each rank for {} copies of its state, which "
                  "outlive its process; {}",
                  obs::bytes_text(parts.copies_bytes), parts.copy_memory->shape().buffers, pace)};
  if (parts.peers) {
    lines.push_back(
        fmt::format("copies    each rank's are also kept by a rank on another node, in "
                    "{} of its host",
                    obs::bytes_text(parts.kept_bytes)));
  } else if (!parts.no_partners.empty()) {
    lines.push_back("copies    they are not kept on other nodes: " + parts.no_partners);
  }
  return lines;
}

// Do repeated steps have the same bits?
bool has_fixed_order(const config::Config& c, const Platform& platform, const RankStart& start) {
  if (!platform.is_gpu()) return true;
  // Processes on GPUs communicate over NCCL, threads in the fixed order.
  const bool is_nccl = start.ranks > 1 && start.process_ranks == 1;
  return c.system.determinism == "l1" && (!is_nccl || c.comm.fixed_order);
}

ckpt::Guard guard_of(const obs::RunOwner* owner) {
  if (owner == nullptr) return {};
  return [owner](const auto& write) { owner->guarded(write); };
}

}  // namespace

Run::Run(const config::Config& c, obs::RunMode mode, const TrainHooks& hooks,
         const RankStart& start)
    : config_(c),
      hooks_(hooks),
      start_(start),
      bench_(c, mode, hooks, start),
      parts_(std::in_place, bench_, start_, kept_),
      numerics_(*parts_, [this](const std::string& text) { log(text); }),
      timeline_(bench_.data.legs()),
      signals_(hooks.stop, hooks.save),
      repeated_(has_fixed_order(c, bench_.platform, start)),
      grace_(c.elastic.grace_s),
      hardware_(make_hardware_watch(c.metrics.hardware, bench_.platform, start)) {
  equip();
  if (hooks.drift.block >= 0) plant_.emplace(hooks.drift, bench_.model);
  summary_.hardware = bench_.platform.hardware;
  summary_.parameters = spec::parameter_count(bench_.model);
}

void Run::equip() {
  live_.reset();
  fetched_.clear();
  if (kept_) {
    live_ = kept_->point;
    source_ = kept_->source;
    fetched_ = kept_->fetched;
    kept_.reset();  // before memory for saves is allocated
  }
  parts_->checkpoints.emplace(
      RunCheckpoints::Parts{.config = config_,
                            .data = bench_.data,
                            .timeline = timeline_,
                            .contents = bench_.data_contents,
                            .tokenizer = bench_.tokenizer,
                            .engine = *parts_->engine,
                            .model = bench_.model,
                            .rank = parts_->rank,
                            .device = *bench_.platform.device,
                            .copy_memory = parts_->copy_memory ? &*parts_->copy_memory : nullptr,
                            .peers = parts_->peers ? &*parts_->peers : nullptr,
                            .epoch_writer = start_.epoch_writer.get(),
                            .epoch = start_.epoch,
                            .earlier = summary_.checkpoints,
                            .earlier_copies = summary_.copies},
      resume_in(start_, hooks_), guard_of(bench_.owner.get()), checkpoint_hooks());
  parts_->sampler.emplace(RankSampler::Parts{.model = bench_.model,
                                             .platform = bench_.platform,
                                             .start = parts_->start,
                                             .hardware = hardware_.get(),
                                             .steps = config_.metrics.ranks_freq});
}

CheckpointHooks Run::checkpoint_hooks() {
  return {.log =
              [this](const std::string& text) {
                if (hooks_.log) hooks_.log(text);
              },
          .saved =
              [this](const SavedGeneration& saved) {
                summary_.saved_step = saved.step;
                summary_.save_problem.clear();
                if (marks_) marks_->saved(saved.step);
                log(saved_line(saved));
                report(grace_.saved(saved.durable_seconds, clock_.median_lap()));
                if (output_) output_->add(saved);
                record(saved);
              },
          .failed =
              [this](int64_t step, const std::string& why) {
                summary_.save_problem = why;
                bench_.run_log.add({.kind = obs::EventKind::save_failed,
                                    .step = step,
                                    .severity = obs::Severity::error,
                                    .text = fmt::format(
                                        "the checkpoint of step {} was not saved: {}", step, why)});
              },
          .partner = [this](int64_t step, const PartnerNews& news) { record(step, news); },
          .numerics = [this] { return numerics_.state(); },
          .program = hooks_.program};
}

void Run::record(const SavedGeneration& saved) {
  bench_.run_log.saved();
  bench_.run_log.add({.kind = obs::EventKind::checkpoint,
                      .step = saved.step,
                      .text = fmt::format("the checkpoint of step {} is durable", saved.step),
                      .data = {{"bytes", saved.bytes},
                               {"stall_seconds", saved.stall_seconds},
                               {"durable_seconds", saved.durable_seconds}}});
}

void Run::record(int64_t step, const PartnerNews& news) {
  if (!news.is_lost) {
    log("partners  " + news.text);
    return;
  }
  base::log_warning("{}", news.text);
  bench_.run_log.add({.kind = obs::EventKind::hardware,
                      .step = step,
                      .severity = obs::Severity::warning,
                      .text = news.text,
                      .data = {{"what", "copies"}, {"rank", news.rank}}});
}

void Run::report(const GraceBudget::Line& line) const {
  if (line.text.empty() || start_.number != 0) return;
  if (line.is_warning) {
    base::log_warning("{}", line.text);
  } else {
    log("grace     " + line.text);
  }
}

void Run::log(const std::string& text) const {
  if (start_.number == 0 && hooks_.log) hooks_.log(text);
}

void Run::describe() const {
  for (const std::string& line : parts_->start.description) log(line);
  if (parts_->start.ranks > 1) log(layout_line(parts_->plan().layout));
  for (const std::string& line :
       describe_run(bench_.model, parts_->plan(), bench_.platform, parts_->peaks)) {
    log(line);
  }
  log(host_line(parts_->host_bytes()));
  for (const std::string& line : copies_lines(*parts_)) log(line);
  const int64_t done = parts_->resume_point ? parts_->resume_point->step() : 0;
  for (const std::string& line : bench_.data.describe(done + 1)) log(line);
  if (const std::string& tokenizer = bench_.tokenizer.description(); !tokenizer.empty()) {
    log("tokenizer " + tokenizer);
  }
}

void Run::resume() {
  const obs::PhaseClock::Scope scope(phases(), obs::Phase::restore);
  if (live_) {
    resumed_ = Resumed{.step = live_->step,
                       .samples = live_->samples,
                       .tokens = live_->tokens,
                       .writer = {},
                       .numerics = {}};
    log(fmt::format("resume    step {} from {}", live_->step, name_of(source_)));
  } else {
    resumed_ = parts_->checkpoints->resume(
        {.prepare = [this](int64_t step, const base::Json& state) { prepare_engine(step, state); },
         .run_steps = [this](const Resumed& from, int64_t last) { replay(from, last); }});
    source_ = resumed_ ? StateSource::generation : StateSource::none;
  }
  if (live_) {
    numerics_.continue_after(live_->step);
  } else {
    try {
      numerics_.restore(resumed_ ? resumed_->numerics : base::Json(),
                        resumed_ ? resumed_->step : 0);
    } catch (const base::Json::exception& error) {
      throw RunNumerics::unreadable(resumed_->step, error);
    }
  }
  if (epoch_first_step_ == 0) {
    begin_attempt(resumed_);
  } else {
    continue_attempt(resumed_);
  }
  const kernels::StepState state = parts_->engine->step_state();
  timeline_.begin_counts(state.applied + state.skipped);
  epoch_first_step_ = timeline_.step() + 1;
  epoch_seconds_ = clock_.seconds();
  has_state_ = true;
  // The last epoch ended before its engine was rebuilt with them.
  if (live_ && numerics_.blocks() != parts_->bf16_blocks) change_precision(numerics_.blocks());
  record_resume();
  begin_recovery();
}

void Run::record_resume() {
  if (!start_.epoch_writer) return;
  try {
    start_.epoch_writer->resumed({.step = timeline_.step(), .source = name_of(source_)});
  } catch (const base::IoError& error) {
    base::log_warning("where this epoch resumes is not recorded: {}", error.what());
  }
}

void Run::begin_attempt(const std::optional<Resumed>& from) {
  if (!from) {
    log(parts_->has_given_weights
            ? "start     weights of " + config_.training.init_from
            : fmt::format("start     weights initialised from seed {}", config_.debug.seed));
    return;
  }
  timeline_.begin_after(from->step, from->samples, from->tokens);
  summary_.resumed_from = from->step;
  summary_.skipped_steps = parts_->engine->step_state().skipped;
}

void Run::prepare_engine(int64_t step, const base::Json& numerics) {
  std::vector<int> blocks;
  try {
    blocks = RunNumerics::blocks_after(numerics, config_);
  } catch (const base::Json::exception& error) {
    throw RunNumerics::unreadable(step, error);
  }
  // All ranks follow the first one.
  blocks = list_of(parts_->rank.gather(set_of(blocks)).front());
  if (parts_->continues_after(step, blocks)) return;
  log(fmt::format("resume    the engine is rebuilt for the checkpoint of step {}", step));
  parts_->checkpoints->release_engine();
  parts_->rebuild_after(step, blocks);
  timeline_.engine_replaced();
  parts_->checkpoints->load_into(*parts_->engine);
}

void Run::replay(const Resumed& from, int64_t last) {
  timeline_.begin_after(from.step, from.samples, from.tokens);
  while (timeline_.step() < last) {
    const Leg& leg = bench_.data.leg_at(timeline_.step() + 1);
    if (&leg != parts_->leg) {
      parts_->checkpoints->release_engine();
      parts_->change_leg(leg);
      timeline_.engine_replaced();
      parts_->checkpoints->load_into(*parts_->engine);
    }
    const int64_t end = std::min(last, leg.last_step);
    TrainBatches batches(bench_.data.train(leg.seq_len), parts_->plan(), parts_->rank.coord(),
                         timeline_.step(), leg.shift + timeline_.shift());
    while (timeline_.step() < end) {
      parts_->engine->step(batches, learning_rate(timeline_.step() + 1));
      timeline_.advance();
      if (parts_->rank.is_first() && hooks_.progress) hooks_.progress(timeline_.step(), "replay");
    }
  }
}

// Logs what the run is going to do. After resume(), before begin().
void Run::describe_plan() {
  summary_.checkpoint_bytes = parts_->checkpoints->checkpoint_bytes();
  if (timeline_.step() >= config_.training.steps) return;
  const Leg& leg = *parts_->leg;
  const int64_t before = timeline_.step(), steps = config_.training.steps;
  int64_t held_out = 0, validated = 0;
  for (size_t i = 0; i < bench_.data.validations(); ++i) {
    const int64_t samples = bench_.data.validation(i, leg.seq_len).samples();
    held_out += samples;
    validated += validated_samples(config::validation_samples(config_), samples);
  }
  const bool is_uniform = bench_.data.legs().size() == 1;
  RunWork work{
      .first_step = before + 1,
      .step_samples = parts_->step_samples(),
      .samples = is_uniform ? -1 : timeline_.samples_at(steps) - timeline_.samples_at(before),
      .tokens = is_uniform ? -1 : timeline_.tokens_at(steps) - timeline_.tokens_at(before),
      .training_samples = bench_.data.epoch_samples(leg.seq_len),
      .samples_before = timeline_.samples_at(before),
      .tokens_before = timeline_.tokens_at(before),
      .held_out_samples = held_out,
      .validated_samples = validated,
      .validations = static_cast<int64_t>(bench_.data.validations()),
      .checkpoint_bytes = summary_.checkpoint_bytes,
      .weights_bytes = exports_weights(config_) ? exported_bytes(config_) : 0};
  // A disk may be slow to answer.
  parts_->rank.on_first([&] {
    const auto folder = std::filesystem::path(config_.job.dump_folder) / config_.checkpoint.folder;
    work.free_bytes = free_bytes(folder);
    if (!parts_->checkpoints->saves() || bench_.mode != obs::RunMode::resume) return;
    work.checkpoints_before = std::ssize(ckpt::committed_steps(*ckpt::posix_disk(), folder));
  });
  for (const std::string& line : describe_work(config_, work)) log(line);
  if (config_.elastic.grace_s > 0 && parts_->rank.is_first()) {
    const bool continues = bench_.mode == obs::RunMode::resume;
    report(grace_.start(summary_.checkpoint_bytes, continues
                                                       ? obs::read_events(config_.job.dump_folder)
                                                       : std::vector<obs::Event>()));
  }
  for (const std::string& line : bench_.data.describe_mixture(before + 1)) log(line);
}

// Refuses traced steps that no single engine runs.
void Run::check_trace() const {
  const TraceSteps& steps = hooks_.trace;
  if (steps.first <= 0 || steps.first > config_.training.steps) return;
  const int64_t last = std::min(steps.last, config_.training.steps);
  if (&bench_.data.leg_at(steps.first) == &bench_.data.leg_at(last)) return;
  throw base::ConfigError(
      fmt::format("traced steps {} to {} belong to phases with different sequence lengths or "
                  "batches; trace steps of one phase",
                  steps.first, steps.last));
}

// Everything that may be refused was accepted: from here on the run writes.
void Run::begin() {
  Checkpointer::Begin begin;
  parts_->rank.on_first([&] { begin = begin_output(); });
  begin.step = resumed_ ? timeline_.step() : -1;
  if (parts_->start.begins) parts_->start.begins();
  parts_->checkpoints->begin(begin);
  if (parts_->rank.is_first() && parts_->checkpoints->saves()) begin_marks();
  if (bench_.owner && !std::exchange(has_begun_, true)) {
    bench_.owner->begun();
    if (start_.epoch > 0 && start_.next_epoch) {
      record_epoch(timeline_.step(), "this process is new");
    }
  }
  begin_ranks();
  record_fatal_signals();
}

void Run::begin_marks() {
  if (!marks_) {
    marks_.emplace(RunMarks::Options{
        .folder = std::filesystem::path(config_.job.dump_folder) / config_.checkpoint.folder,
        .good_after = config_.checkpoint.good_after_steps,
        .guard = guard_of(bench_.owner.get()),
        .log = [this](const std::string& text) { log(text); }});
  }
  marks_->begin(bench_.owner->epoch(), resumed_ ? timeline_.step() : -1);
}

void Run::record_fatal_signals() {
  struct Labels {
    int64_t attempt, epoch;
  };
  const obs::RunOwner* owner = bench_.owner.get();
  const Labels labels =
      parts_->rank
          .gather(owner == nullptr ? Labels{0, 0} : Labels{owner->attempt(), owner->epoch()})
          .front();
  const bool is_first_of_process = parts_->start.process_ranks == 1 || parts_->rank.is_first();
  if (!is_first_of_process || signal_events_) return;
  signal_events_.emplace(
      config_.job.dump_folder,
      obs::Event{.attempt = labels.attempt, .epoch = labels.epoch, .node = node_name()});
}

void Run::begin_ranks() {
  if (hardware_ && !hardware_->problem().empty()) {
    log("hardware  counters are unknown: " + hardware_->problem());
  }
  const std::vector<RankPlace> places =
      parts_->rank.gather(rank_place(node_name(), bench_.platform.hardware));
  if (output_) output_->begin_ranks(rank_table_shape(parts_->plan().mesh, places));
}

// On the first rank.
Checkpointer::Begin Run::begin_output() {
  const obs::RunOwner& owner = *bench_.owner;
  Checkpointer::Begin begin;
  if (owner.previous()) begin.previous_run = owner.previous()->run;
  if (!output_) open_output(begin.previous_run);
  begin.writer = {.run = owner.run(), .epoch = owner.epoch()};
  return begin;
}

// Opens the run's folder.
void Run::open_output(const std::string& previous_run) {
  obs::RunOwner& owner = *bench_.owner;
  // A checkpoint names its run; a folder that is resumed before it has one belongs to its last run.
  const bool continues = bench_.mode == obs::RunMode::resume;
  owner.begin(resumed_ && !resumed_->writer.run.empty() ? resumed_->writer.run
              : continues                               ? previous_run
                                                        : "");
  bench_.listeners.emplace(config_, hooks_.environment,
                           base::Json{{"kind", "run"},
                                      {"run", owner.run()},
                                      {"attempt", owner.attempt()},
                                      {"name", config_.job.name},
                                      {"group", config_.job.group},
                                      {"folder", config_.job.dump_folder},
                                      {"resumes", bench_.mode == obs::RunMode::resume},
                                      {"config", config::to_json(config_)}});
  output_.emplace(config_, bench_.mode, parts_->plan(), bench_.tokenizer.files(), owner,
                  hooks_.program, resumed_ ? resumed_->step : -1,
                  [this](std::string_view lines) { bench_.listeners->pass_on(lines); });
  summary_.prediction = predict_run(config_, bench_.platform.hardware, hooks_.machines);
  obs::write_file(output_->folder() / "prediction.json",
                  prediction_json(*summary_.prediction, *parts_).dump(2) + "\n");
  const int sharers = parts_->start.device_sharers;
  bench_.run_log.open(owner, {.name = config_.job.name,
                              .group = config_.job.group,
                              .ranks = parts_->start.ranks,
                              .devices = (parts_->start.ranks + sharers - 1) / sharers,
                              .price_per_hour = summary_.prediction->price_per_hour,
                              .resumed_from = resumed_ ? resumed_->step : -1,
                              .rules = AlertRules(config_.alerts, *summary_.prediction,
                                                  config_.checkpoint.enable, obs::wall_seconds()),
                              .listeners = &*bench_.listeners});
  summary_.run_folder = output_->folder();
  log(fmt::format("run       {} in {} ({}, attempt {})", config_.job.name, config_.job.dump_folder,
                  owner.run(), owner.attempt()));
}

}  // namespace trireme::train
