// SPDX-License-Identifier: Apache-2.0
#include "train/run_checkpoints.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/json.h"
#include "ckpt/posix_disk.h"
#include "config/model_file.h"
#include "obs/clock.h"
#include "train/run_text.h"

namespace trireme::train {
namespace {

bool wants_saves(const config::Checkpoint& c) {
  return c.enable && (c.interval > 0 || c.interval_seconds > 0 || c.mean_failure_seconds > 0);
}

// Adds what is another value now; of objects that have one name, of their keys.
void add_changes(const std::string& key, const base::Json& was, const base::Json& is,
                 std::string& changes) {
  if (was == is) return;
  const auto name_of = [](const base::Json& value) {
    return value.is_object() && value.contains("name") ? value.at("name") : base::Json();
  };
  if (was.is_object() && is.is_object() && name_of(was) == name_of(is)) {
    for (const auto& [inner, value] : is.items()) {
      add_changes(key + "." + inner, was.contains(inner) ? was.at(inner) : base::Json(), value,
                  changes);
    }
    return;
  }
  const auto text = [&](const base::Json& value) {
    return name_of(value).is_null() ? value.dump() : name_of(value).dump();
  };
  changes +=
      fmt::format("{}{} was {}, is {}", changes.empty() ? "" : "; ", key, text(was), text(is));
}

// What of the plan decides bits and is another one now; empty: nothing.
std::string changes_of_identity(const base::Json& was, const base::Json& is) {
  std::string changes;
  for (const char* key : {"logical_dp", "reduce", "reduce_dtype", "recipe", "optimizer"}) {
    add_changes(key, was.contains(key) ? was.at(key) : base::Json(), is.at(key), changes);
  }
  return changes;
}

}  // namespace

RunCheckpoints::RunCheckpoints(const config::Config& config, engine::Engine& engine,
                               const spec::ModelSpec& model, Rank& rank, device::Device& device,
                               const Resume& resume, CheckpointHooks hooks)
    : config_(config),
      model_(model),
      plan_(engine.plan()),
      rank_(rank),
      resume_(resume),
      saves_(wants_saves(config.checkpoint)),
      hooks_(std::move(hooks)),
      disk_(ckpt::posix_disk()) {
  if (!saves_ && resume_.from == Resume::From::start) return;
  checkpointer_.emplace(engine, model, rank, device, *disk_,
                        CheckpointOptions{.folder = std::filesystem::path(config.job.dump_folder) /
                                                    config.checkpoint.folder,
                                          .keep = config.checkpoint.keep_latest_k,
                                          .reread = config.checkpoint.reread},
                        hooks_);
}

std::optional<int64_t> RunCheckpoints::resume(
    const std::function<void(int64_t first, int64_t last)>& run_steps) {
  std::optional<int64_t> from;
  if (resume_.from != Resume::From::start) {
    const int64_t wanted = resume_.from == Resume::From::step ? resume_.step : -1;
    auto loaded = checkpointer_->load({.step = wanted});
    if (loaded) {
      check(*loaded);
      if (resume_.verifies) replay(*loaded, run_steps);
      from = loaded->step;
    }
    if (rank_.is_first()) {
      hooks_.say(loaded
                     ? fmt::format("resume    step {} of {}", loaded->step, loaded->folder.string())
                     : "resume    there is no checkpoint yet: from the start");
    }
  }
  if (!saves_) {
    checkpointer_.reset();
    return from;
  }
  checkpointer_->begin_run(from.value_or(-1));
  saved_at_ = obs::steady_seconds();
  return from;
}

void RunCheckpoints::check(const Checkpointer::Loaded& loaded) const {
  // Of step 0 there is no run yet that this one would have to be like.
  if (loaded.step == 0) return;
  const std::string changes = changes_of_identity(loaded.plan, spec::to_json(plan_));
  if (!changes.empty() && rank_.is_first()) {
    hooks_.say(fmt::format("resume    the run goes on, but not to the bit: {}", changes));
  }
  std::string problems;
  const base::Json own = run_state(loaded.step);
  for (const auto& [key, value] : own.items()) {
    const base::Json was = loaded.state.contains(key) ? loaded.state.at(key) : base::Json();
    if (was == value) continue;
    problems += fmt::format("\n  {}: was {}, is {}", key, was.dump(), value.dump());
  }
  if (problems.empty()) return;
  throw base::ConfigError(fmt::format(
      "{}: this run would not go on as the saved one; set what differs as it was, or start anew "
      "(--resume never) from its weights:{}",
      loaded.folder.string(), problems));
}

// Loads the checkpoint before the wanted one, runs the steps between them, compares, and loads the
// wanted one again.
void RunCheckpoints::replay(const Checkpointer::Loaded& target,
                            const std::function<void(int64_t first, int64_t last)>& run_steps) {
  const auto before = checkpointer_->load({.below = target.step, .is_needed = false});
  if (!before) {
    throw base::ConfigError(
        fmt::format("{}: there is no checkpoint before step {} to replay steps from; keep more "
                    "(checkpoint.keep_latest_k), or resume without --resume-verify",
                    config_.checkpoint.folder, target.step));
  }
  check(*before);
  if (rank_.is_first()) {
    hooks_.say(fmt::format("resume    replaying steps {} to {}", before->step + 1, target.step));
  }
  run_steps(before->step + 1, target.step);
  const std::string difference = checkpointer_->difference(target.step);
  if (!difference.empty()) {
    throw base::Error(fmt::format(
        "the steps from {} to {} were run again and gave other bits than {} has, first in {}: "
        "another machine, build or numerical identity, or damage that no hash sees",
        before->step + 1, target.step, target.folder.string(), difference));
  }
  if (rank_.is_first())
    hooks_.say(fmt::format("resume    replayed: the bits of step {}", target.step));
  (void)checkpointer_->load({.step = target.step});
}

base::Json RunCheckpoints::run_state(int64_t step) const {
  const int64_t samples = step_tokens(plan_) / plan_.seq_len;
  return {{"step", step},
          {"seed", config_.debug.seed},
          {"samples", step * samples},
          {"samples_a_step", samples},
          {"seq_len", plan_.seq_len}};
}

void RunCheckpoints::save(int64_t step) {
  saved_at_ = obs::steady_seconds();
  base::Json state = run_state(step);
  state["model"] = config::to_json(config_.dims);
  checkpointer_->save(step, state);
}

bool RunCheckpoints::settle() {
  if (!saves_) return false;
  checkpointer_->settle();
  const double every = interval_seconds();
  if (every <= 0) return false;
  const bool is_time = obs::steady_seconds() - saved_at_ >= every;
  return rank_.gather(static_cast<uint8_t>(is_time ? 1 : 0)).front() != 0;
}

double RunCheckpoints::interval_seconds() const {
  const config::Checkpoint& c = config_.checkpoint;
  if (c.mean_failure_seconds <= 0) return c.interval_seconds;
  // The first save, soon after the start, measures what one costs.
  constexpr double first_seconds = 1;
  const SaveFigures& figures = checkpointer_->figures();
  if (figures.saves == 0) return first_seconds;
  const double cost = figures.stall_seconds / static_cast<double>(figures.saves);
  // The next one begins no sooner than the last is durable.
  const double best =
      std::max(std::sqrt(2 * cost * c.mean_failure_seconds), figures.durable_seconds);
  return c.interval_seconds > 0 ? std::min(best, c.interval_seconds) : best;
}

RunCheckpoints::Memory RunCheckpoints::memory() const {
  if (!checkpointer_) return {};
  return {.predicted_bytes =
              Checkpointer::memory_bytes(model_, plan_, rank_.number(), config_.checkpoint.reread),
          .measured_bytes = checkpointer_->used_bytes()};
}

void RunCheckpoints::finish() {
  if (checkpointer_) checkpointer_->finish();
}

}  // namespace trireme::train
