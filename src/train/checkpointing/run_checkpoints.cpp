// SPDX-License-Identifier: Apache-2.0
#include "train/checkpointing/run_checkpoints.h"

#include <algorithm>
#include <array>

#include "base/check.h"
#include "base/error.h"
#include "base/log.h"
#include "base/text/json.h"
#include "ckpt/disk/posix_disk.h"
#include "ckpt/generation/folder.h"
#include "config/files/model_file.h"
#include "config/layout.h"
#include "obs/clock.h"
#include "plan/price/run_cost.h"
#include "train/report/run_text.h"
#include "train/setup/absolute_paths.h"

namespace trireme::train {
namespace {

// Returns the tokens that the run had trained on. Builds that did not record them had sequences of
// one length.
int64_t tokens_of(const Checkpointer::Loaded& loaded) {
  const base::Json& state = loaded.state;
  if (loaded.step == 0) return 0;
  if (state.contains("tokens")) return state.at("tokens").get<int64_t>();
  return state.at("samples").get<int64_t>() * state.at("seq_len").get<int64_t>();
}

// Returns the samples that the run had consumed. Imported weights belong to no run yet.
int64_t samples_of(const Checkpointer::Loaded& loaded) {
  return loaded.step == 0 ? 0 : loaded.state.at("samples").get<int64_t>();
}

// Returns where a run continues from the checkpoint.
Resumed resumed_from(const Checkpointer::Loaded& loaded) {
  return {.step = loaded.step,
          .samples = samples_of(loaded),
          .tokens = tokens_of(loaded),
          .writer = loaded.writer,
          .numerics = loaded.state.value("numerics", base::Json())};
}

std::string indented_lines(const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) text += "\n  " + line;
  return text;
}

}  // namespace

ckpt::Retention retention_of(const config::Checkpoint& c) {
  return {.latest = c.keep_latest_k, .every = c.keep_every, .good_after = c.good_after_steps};
}

RunCheckpoints::RunCheckpoints(const Parts& parts, const Resume& resume, ckpt::Guard guard,
                               CheckpointHooks hooks)
    : config_(parts.config),
      data_(parts.data),
      timeline_(parts.timeline),
      contents_(parts.contents),
      tokenizer_(parts.tokenizer),
      model_(parts.model),
      engine_(&parts.engine),
      plan_(&parts.engine.plan()),
      rank_(parts.rank),
      device_(parts.device),
      resume_(resume),
      saves_(config_.checkpoint.enable),
      hooks_(std::move(hooks)),
      disk_(ckpt::posix_disk()),
      guard_(std::move(guard)),
      epoch_writer_(parts.epoch_writer),
      copy_memory_(parts.copy_memory),
      peers_(parts.peers),
      epoch_(parts.epoch),
      copy_pace_(config_.elastic.peer_interval, config_.elastic.peer_cost),
      copy_figures_(parts.earlier_copies),
      released_figures_(parts.earlier) {
  if (!saves_ && resume_.from == Resume::From::start) return;
  make_checkpointer(parts.engine);
}

void RunCheckpoints::make_checkpointer(engine::Engine& engine) {
  std::function<void(int64_t)> claim;
  if (epoch_writer_ != nullptr) claim = [this](int64_t step) { epoch_writer_->commit(step); };
  checkpointer_.emplace(engine, model_, rank_, device_, *disk_,
                        CheckpointOptions{.folder = checkpoint_folder(),
                                          .retention = retention_of(config_.checkpoint),
                                          .reread = config_.checkpoint.reread,
                                          .guard = guard_,
                                          .claim = claim,
                                          .tokenizer = tokenizer_.files()},
                        hooks_);
}

void RunCheckpoints::make_copies(engine::Engine& engine, int64_t step) {
  if (copy_memory_ == nullptr) return;
  // Only the first rank knows the run.
  std::array<char, 40> run{};
  TRIREME_CHECK(begin_.writer.run.size() < run.size(), "run '{}'", begin_.writer.run);
  std::ranges::copy(begin_.writer.run, run.begin());
  run = rank_.gather(run).front();
  copies_.emplace(MemoryCopies::Parts{.engine = engine,
                                      .model = model_,
                                      .rank = rank_,
                                      .device = device_,
                                      .memory = *copy_memory_,
                                      .pace = copy_pace_,
                                      .figures = copy_figures_,
                                      .peers = peers_});
  copies_->begin(run.data(), epoch_, step);
}

void RunCheckpoints::release_engine() {
  finish();
  copies_.reset();
  released_figures_ = figures();
  checkpointer_.reset();
}

void RunCheckpoints::use_engine(engine::Engine& engine) {
  engine_ = &engine;
  plan_ = &engine.plan();
  if (saves_) {
    make_checkpointer(engine);
    checkpointer_->continue_run(begin_);
  }
  make_copies(engine, timeline_.step());
}

SaveFigures RunCheckpoints::figures() const {
  SaveFigures sum = checkpointer_ ? checkpointer_->figures() : SaveFigures{};
  sum.saves += released_figures_.saves;
  sum.failed += released_figures_.failed;
  sum.bytes += released_figures_.bytes;
  sum.stall_seconds += released_figures_.stall_seconds;
  if (sum.durable_seconds == 0) sum.durable_seconds = released_figures_.durable_seconds;
  return sum;
}

void RunCheckpoints::load_into(engine::Engine& engine) {
  engine_ = &engine;
  plan_ = &engine.plan();
  make_checkpointer(engine);
}

std::optional<Checkpointer::Loaded> RunCheckpoints::load(const Checkpointer::LoadOptions& options,
                                                         const ResumeHooks& hooks) {
  const std::vector<int64_t> steps = checkpointer_->candidates(options);
  for (const int64_t step : steps) {
    const std::optional<base::Json> numerics = saved_numerics(step);
    const bool is_readable = rank_.gather(static_cast<uint8_t>(numerics ? 1 : 0)).front() != 0;
    if (is_readable) hooks.prepare(step, numerics.value_or(base::Json()));
    if (auto loaded = checkpointer_->load_step(step)) return loaded;
  }
  return checkpointer_->loaded_none(options, steps);
}

std::optional<base::Json> RunCheckpoints::saved_numerics(int64_t step) const {
  const std::filesystem::path folder = checkpoint_folder() / ckpt::generation_name(step);
  if (!ckpt::missing_in(*disk_, folder).empty()) return {};
  return ckpt::read_manifest(*disk_, folder).state.value("numerics", base::Json());
}

std::filesystem::path RunCheckpoints::checkpoint_folder() const {
  return std::filesystem::path(config_.job.dump_folder) / config_.checkpoint.folder;
}

std::optional<Resumed> RunCheckpoints::resume(const ResumeHooks& hooks) {
  if (resume_.from == Resume::From::start) return {};
  const int64_t wanted = resume_.from == Resume::From::step ? resume_.step : -1;
  const auto loaded = load({.step = wanted, .mark = wanted_mark(resume_)}, hooks);
  if (!loaded) {
    if (rank_.is_first()) hooks_.log("resume    no checkpoint exists yet: starting from step 1");
    return {};
  }
  check(*loaded);
  if (resume_.verifies) replay(*loaded, hooks);
  if (rank_.is_first()) {
    hooks_.log(fmt::format("resume    step {} of {}", loaded->step, loaded->folder.string()));
  }
  return resumed_from(*loaded);
}

void RunCheckpoints::begin(const Checkpointer::Begin& begin) {
  begin_ = begin;
  if (saves_) {
    checkpointer_->begin_run(begin);
  } else {
    checkpointer_.reset();
  }
  saved_at_ = obs::steady_seconds();
  make_copies(*engine_, begin.step);
}

void RunCheckpoints::check(const Checkpointer::Loaded& loaded) const {
  // An imported checkpoint of step 0 belongs to no run yet.
  if (loaded.step == 0) return;
  const StateChanges changes = changes_of_state(loaded.state, run_state(loaded.step));
  std::string problems;
  if (!changes.data.empty() && !resume_.allows_data_change) {
    problems += fmt::format("\nother data (--allow-data-change accepts it):{}",
                            indented_lines(changes.data));
  }
  if (!changes.batch.empty() && !resume_.allows_batch_change) {
    std::vector<std::string> lines = changes.batch;
    if (const std::string keys = saved_keys_text(loaded); !keys.empty()) lines.push_back(keys);
    problems +=
        fmt::format("\nanother batch (--allow-batch-change accepts it):{}", indented_lines(lines));
  }
  // The order of a mixture is computed for the steps of its phases, not for other positions.
  if (problems.empty() && !data_.is_one_stream() &&
      samples_of(loaded) != data_.samples_until(loaded.step)) {
    problems += fmt::format(
        "\nthe checkpoint has read {} samples, and the phases of this run {} until step {}; a "
        "[[phase]] with from_step = {} changes the batch of a run with phases or several data sets",
        samples_of(loaded), data_.samples_until(loaded.step), loaded.step, loaded.step + 1);
  }
  if (!problems.empty()) {
    throw base::ConfigError(
        fmt::format("{}: this run would not continue the saved one. Restore the settings below, or "
                    "start a new run from its weights (--init-from) in another folder.{}",
                    loaded.folder.string(), problems));
  }
  if (rank_.is_first()) log_changes(changes, loaded);
}

std::string RunCheckpoints::saved_keys_text(const Checkpointer::Loaded& loaded) const {
  const spec::Layout& saved = loaded.plan.layout;
  std::string refused;
  // As open keys do: with the saved reduction, or without it.
  for (const bool takes_reduce : {true, false}) {
    config::Config as_saved = config_;
    std::string keys;
    const auto set = [&keys](const char* key, auto& value, const auto& to) {
      if (value == to) return;
      value = to;
      keys += fmt::format(" --{}={}", key, to);
    };
    config::Parallelism& p = as_saved.parallelism;
    set("parallelism.logical_dp", p.logical_dp, int64_t{saved.logical_dp});
    if (takes_reduce) {
      set("parallelism.reduce", p.reduce, std::string(spec::name_of(saved.reduce)));
    }
    set("training.global_batch_size", as_saved.training.global_batch_size,
        saved_batch(loaded.folder, loaded.state));
    if (keys.empty()) return "";  // the batch of a phase differs
    const spec::Settled settled =
        spec::settle(spec::sizes_of(config_.dims), config::workload_of(as_saved), rank_.ranks(),
                     config::layout_of(as_saved), spec::Whose::engine, config::layout_paths());
    if (settled.broken.empty()) return fmt::format("set{} to continue with the saved one", keys);
    if (!refused.empty()) continue;
    refused = fmt::format("the saved one needs{}, which this layout does not allow: {}", keys,
                          spec::to_text(settled.broken.front()));
  }
  return refused;
}

void RunCheckpoints::log_changes(const StateChanges& changes,
                                 const Checkpointer::Loaded& loaded) const {
  if (!changes.has_config) {
    hooks_.log(
        "resume    this checkpoint does not record its data and configuration: not compared");
  }
  for (const auto* lines : {&changes.data, &changes.batch, &changes.config}) {
    for (const std::string& line : *lines) hooks_.log("resume    changed: " + line);
  }
  const std::string identity = identity_changes(loaded);
  if (!identity.empty()) {
    hooks_.log(fmt::format("resume    the run continues, but not bit for bit: {}", identity));
  }
}

// The plan has the micro-batch of a phase; what the phases inherit stands in the configuration.
std::string RunCheckpoints::identity_changes(const Checkpointer::Loaded& loaded) const {
  std::string changes = changes_of_identity(loaded.plan, *plan_);
  if (!loaded.state.contains("config")) return changes;
  const base::Json was = loaded.state.at("config").at("training").value("local_batch_size", -1);
  if (was != config_.training.local_batch_size) {
    changes += fmt::format("{}local_batch_size was {}, is {}", changes.empty() ? "" : "; ",
                           was.dump(), config_.training.local_batch_size);
  }
  return changes;
}

// Loads the checkpoint before the target, replays the steps between them, compares, and loads the
// target again.
void RunCheckpoints::replay(const Checkpointer::Loaded& target, const ResumeHooks& hooks) {
  const auto before = load({.below = target.step, .is_needed = false}, hooks);
  if (!before) {
    throw base::ConfigError(
        fmt::format("{}: no checkpoint before step {} exists to replay steps from; keep more "
                    "(checkpoint.keep_latest_k), or resume without --resume-verify",
                    config_.checkpoint.folder, target.step));
  }
  check_bits(*before);
  check_bits(target);
  if (plan_->layout.bf16_blocks != target.plan.layout.bf16_blocks) {
    throw base::ConfigError(
        fmt::format("--resume-verify: blocks fell back to bf16, or returned, between steps {} and "
                    "{}; such steps are not replayed: resume without --resume-verify",
                    before->step + 1, target.step));
  }
  if (rank_.is_first()) {
    hooks_.log(fmt::format("resume    replaying steps {} to {}", before->step + 1, target.step));
  }
  hooks.run_steps(resumed_from(*before), target.step);
  const std::string difference = checkpointer_->difference(target.step);
  if (!difference.empty()) {
    throw base::Error(fmt::format(
        "replaying steps {} to {} gave other bits than {}, first in {}: another machine, build or "
        "numerical setting, or damage that no hash detects",
        before->step + 1, target.step, target.folder.string(), difference));
  }
  if (rank_.is_first())
    hooks_.log(fmt::format("resume    replayed: same bits as step {}", target.step));
  (void)load({.step = target.step}, hooks);
}

// Replayed steps can give the same bits only if every setting that decides bits is unchanged.
void RunCheckpoints::check_bits(const Checkpointer::Loaded& loaded) const {
  if (loaded.step == 0 || !loaded.state.contains("config")) return;
  std::vector<std::string> lines;
  base::Json was = loaded.state.at("config");
  base::Json is = without_added_keys(was, own_config(), config::to_json(config::Config{}));
  for (base::Json* config : {&was, &is}) {
    // The data's identity, the batch and lr_scheduler.total_steps stand for these.
    for (const char* key : {"dataset_path", "dataset", "tokenizer", "local_batch_size", "steps"}) {
      (*config)["training"].erase(key);
    }
  }
  for (const char* key : {"optimizer", "lr_scheduler", "training"}) {
    list_changes(key, was.at(key), is.at(key), lines);
  }
  const std::string identity = identity_changes(loaded);
  if (!identity.empty()) lines.push_back(identity);
  if (lines.empty()) return;
  throw base::ConfigError(fmt::format(
      "--resume-verify: the steps since {} cannot give the same bits, because this changed:{}",
      loaded.folder.string(), indented_lines(lines)));
}

// Paths are those of run.json, so that a run that is resumed from it has no change to list.
base::Json RunCheckpoints::own_config() const {
  return config::to_json(with_absolute_paths(config_));
}

// What a resumed run is compared with.
base::Json RunCheckpoints::run_state(int64_t step) const {
  const Leg& leg = data_.leg_at(step);
  return {{"step", step},
          {"seed", config_.debug.seed},
          {"samples", timeline_.samples_at(step)},
          {"samples_a_step", leg.global_batch_size},
          {"tokens", timeline_.tokens_at(step)},
          {"seq_len", leg.seq_len},
          {"data", data_.identity(contents_, step)},
          {"config", own_config()}};
}

// run_state(), and what readers of a checkpoint need besides.
base::Json RunCheckpoints::saved_state(int64_t step) const {
  base::Json state = run_state(step);
  state["model"] = config::to_json(config_.dims);
  if (const base::Json numerics = hooks_.numerics ? hooks_.numerics() : base::Json();
      !numerics.is_null()) {
    state["numerics"] = numerics;
  }
  state["program"] = {{"version", hooks_.program.version}, {"commit", hooks_.program.commit}};
  return state;
}

void RunCheckpoints::copy(const KeptState::Point& at, const std::vector<int>& bf16_blocks,
                          double step_seconds) {
  const kernels::StepState state = engine_->step_state();  // waits for the device
  copies_->copy({.at = at,
                 .bf16_blocks = bf16_blocks,
                 .step_state = state,
                 .step_seconds = step_seconds,
                 .other = saved_step_ == at.step ? &checkpointer_->snapshot() : nullptr,
                 .is_complete = timeline_.step_of_count(state.applied + state.skipped) == at.step});
  if (const std::string problem = copies_->problem(); !problem.empty()) {
    base::log_warning("rank {}: {}", rank_.number(), problem);
  }
  for (const PartnerNews& news : copies_->news()) {
    if (rank_.is_first() && hooks_.partner) hooks_.partner(at.step, news);
  }
}

HostMemoryUse RunCheckpoints::copy_memory() const {
  if (!copies_) return {};
  const int rank = rank_.number();
  return {.predicted_bytes = copies_bytes(copy_layout(model_, *plan_, rank), rank,
                                          static_cast<int>(config_.elastic.peer_buffers)),
          .measured_bytes = copy_memory_->reserved_bytes()};
}

void RunCheckpoints::save(int64_t step) {
  saved_at_ = obs::steady_seconds();
  saved_step_ = step;
  checkpointer_->save(step, saved_state(step));
}

int64_t RunCheckpoints::checkpoint_bytes() {
  if (!saves_) return 0;
  int64_t bytes = checkpointer_->manifest_bytes(saved_state(config_.training.steps));
  for (const int64_t of_rank : rank_.gather(checkpointer_->file_bytes())) bytes += of_rank;
  return bytes;
}

bool RunCheckpoints::poll() {
  if (!saves_) return false;
  checkpointer_->poll();
  if (!is_timed()) return false;  // decided by the configuration, so the same on all ranks
  const bool is_time = obs::steady_seconds() - saved_at_ >= interval_seconds();
  return rank_.gather(static_cast<uint8_t>(is_time ? 1 : 0)).front() != 0;
}

bool RunCheckpoints::is_timed() const {
  const config::Checkpoint& c = config_.checkpoint;
  return c.interval < 0 || c.interval_seconds > 0 || c.mean_failure_seconds > 0;
}

double RunCheckpoints::interval_seconds() const {
  const config::Checkpoint& c = config_.checkpoint;
  const SaveFigures figures = this->figures();
  const double cost =
      figures.saves == 0 ? 0 : figures.stall_seconds / static_cast<double>(figures.saves);
  if (c.mean_failure_seconds <= 0) {
    if (c.interval_seconds > 0) return c.interval_seconds;
    // By default saves cost at most a hundredth of the time, and at most an hour is lost.
    constexpr double min_seconds = 60, max_seconds = 3600, cost_multiple = 100;
    return std::clamp(cost_multiple * cost, min_seconds, max_seconds);
  }
  // The first save, soon after the start, measures the cost of a save.
  constexpr double first_seconds = 1;
  if (figures.saves == 0) return first_seconds;
  // The next save begins no sooner than the last one is durable.
  const double best =
      std::max(plan::best_save_interval(cost, c.mean_failure_seconds), figures.durable_seconds);
  return c.interval_seconds > 0 ? std::min(best, c.interval_seconds) : best;
}

HostMemoryUse RunCheckpoints::memory() const {
  if (!checkpointer_) return {};
  return {.predicted_bytes =
              Checkpointer::memory_bytes(model_, *plan_, rank_.number(), config_.checkpoint.reread),
          .measured_bytes = checkpointer_->used_bytes()};
}

void RunCheckpoints::finish() {
  if (checkpointer_) checkpointer_->finish();
  if (copies_) copies_->finish();
}

}  // namespace trireme::train
