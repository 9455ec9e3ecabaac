// SPDX-License-Identifier: Apache-2.0
#include "train/checkpointer.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <string_view>

#include "base/error.h"
#include "base/json.h"
#include "obs/clock.h"

namespace trireme::train {
namespace {

constexpr std::array<engine::Engine::StateKind, 3> state_kinds = {
    engine::Engine::StateKind::weight, engine::Engine::StateKind::first_moment,
    engine::Engine::StateKind::second_moment};

}  // namespace

Checkpointer::Checkpointer(engine::Engine& engine, const spec::ModelSpec& model, Rank& rank,
                           device::Device& device, ckpt::Disk& disk, CheckpointOptions options,
                           std::function<void(const std::string&)> say)
    : engine_(engine),
      model_(model),
      rank_(rank),
      disk_(disk),
      options_(std::move(options)),
      say_(std::move(say)),
      layout_(ckpt::plan_file(saved_pieces(model, engine.plan(), rank.coord()))),
      copy_(device.make_side_stream("checkpoint")),
      staging_(device.make_host_buffer(device::Mem::checkpoint,
                                       staging_bytes(model, engine.plan(), rank.coord()),
                                       "state to save")),
      // Direct transfers want a page's border.
      staged_(staging_.data() + (-reinterpret_cast<uintptr_t>(staging_.data()) %
                                 static_cast<uintptr_t>(ckpt::page_bytes))),
      copies_(staged_copies(engine, model, rank.coord(), layout_)) {
  manifest_.plan = spec::to_json(engine.plan());
  for (const engine::Engine::ParamInfo& param : engine.parameters()) {
    for (const auto kind : state_kinds) {
      manifest_.tensors.push_back({state_name(kind, param.name), base::DType::f32, param.shape});
    }
  }
}

Checkpointer::~Checkpointer() { join(); }

int64_t Checkpointer::staging_bytes(const spec::ModelSpec& model, const spec::Plan& plan,
                                    const spec::Coord& coord) {
  return ckpt::plan_file(saved_pieces(model, plan, coord)).bytes + ckpt::page_bytes;
}

void Checkpointer::save(int64_t step, const base::Json& state) {
  const double came = obs::steady_seconds();
  finish();
  const double waited = obs::steady_seconds() - came;
  // The host was ahead of the device; what it waits here costs no step anything.
  const base::Json clipping = to_json(engine_.step_state());
  began_ = obs::steady_seconds();
  // Alone, all that touches the disk is the thread's.
  if (!rank_.is_alone() && !begin_together(step)) return;
  is_saving_ = true;
  step_ = step;
  manifest_.step = step;
  manifest_.files.clear();
  manifest_.state = state;
  manifest_.state["clipping"] = clipping;
  // The state as it is when all that is queued has run; the next update waits for the copies.
  engine_.flush_updates();
  copy_->wait(engine_.compute().record());
  for (const StagedCopy& copy : copies_) {
    copy_->download({staged_ + copy.to, static_cast<size_t>(copy.from.bytes())}, copy.from);
  }
  engine_.hold_state(copy_->record());
  set_status({.phase = Phase::writing, .file = {}}, "");
  start([this] {
    if (rank_.is_alone()) draft_ = ckpt::begin_generation(disk_, options_.folder, step_);
    const Status written{.phase = Phase::written, .file = write()};
    if (!rank_.is_alone()) return written;
    commit({written});
    return Status{.phase = Phase::durable, .file = written.file};
  });
  figures_.stall_seconds += waited + obs::steady_seconds() - began_;
}

// The first rank makes the folder; the others are told its number.
bool Checkpointer::begin_together(int64_t step) {
  int64_t number = -1;
  std::string problem;
  if (rank_.is_first()) {
    try {
      draft_ = ckpt::begin_generation(disk_, options_.folder, step);
      const std::string name = draft_->folder.filename().string();
      const std::string_view mark = ckpt::draft_mark;
      number = std::stoll(name.substr(name.find(mark) + mark.size()));
    } catch (const base::IoError& error) {
      problem = error.what();
    }
  }
  number = rank_.gather(number).front();
  if (number < 0) {
    ++figures_.failed;
    if (rank_.is_first()) say_(fmt::format("checkpoint of step {} not saved: {}", step, problem));
    return false;
  }
  if (!rank_.is_first()) {
    const std::string name = ckpt::generation_name(step);
    draft_ = ckpt::Draft{
        .step = step,
        .root = options_.folder,
        .folder = options_.folder / fmt::format("{}{}{}", name, ckpt::draft_mark, number),
        .committed = options_.folder / name};
  }
  return true;
}

void Checkpointer::start(std::function<Status()> work) {
  join();
  writer_ = std::thread([this, work = std::move(work)] {
    try {
      set_status(work(), "");
    } catch (const base::Error& error) {
      set_status({.phase = Phase::failed, .file = {}}, error.what());
    }
  });
}

ckpt::FileInfo Checkpointer::write() {
  copy_->synchronize();
  return ckpt::write_data(disk_,
                          {.folder = draft_->folder,
                           .rank = rank_.number(),
                           .layout = layout_,
                           .bytes = {staged_, static_cast<size_t>(layout_.bytes)}},
                          {.reread = options_.reread});
}

void Checkpointer::commit(const std::vector<Status>& all) {
  for (const Status& status : all) manifest_.files.push_back(status.file);
  ckpt::commit(disk_, *draft_, manifest_);
  durable_at_ = obs::steady_seconds();
  if (options_.keep > 0) ckpt::remove_old(disk_, options_.folder, options_.keep);
}

void Checkpointer::settle() {
  if (!is_saving_) return;
  const std::vector<Status> all = rank_.gather(status());
  const auto is = [&all](Phase phase) {
    return std::any_of(all.begin(), all.end(),
                       [phase](const Status& status) { return status.phase == phase; });
  };
  const bool is_over = is(Phase::failed) || is(Phase::durable);
  if (is(Phase::writing) || is(Phase::committing)) return;
  if (is_over) {
    end_save(all);
  } else if (rank_.is_first()) {
    set_status({.phase = Phase::committing, .file = {}}, "");
    start([this, all] {
      commit(all);
      return Status{.phase = Phase::durable, .file = {}};
    });
  }
}

void Checkpointer::finish() {
  while (is_saving_) {
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] {
        return status_.phase != Phase::writing && status_.phase != Phase::committing;
      });
    }
    settle();
    // Other ranks may still be writing.
    if (is_saving_ && !rank_.is_alone()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

void Checkpointer::end_save(const std::vector<Status>& all) {
  join();
  const auto failed = std::find_if(
      all.begin(), all.end(), [](const Status& status) { return status.phase == Phase::failed; });
  if (failed == all.end()) {
    ++figures_.saves;
    figures_.bytes += layout_.bytes;
    figures_.durable_seconds = durable_at_ - began_;
  } else {
    ++figures_.failed;
    const std::string why =
        !problem_.empty() ? problem_ : fmt::format("rank {} could not write", failed - all.begin());
    say_(fmt::format("checkpoint of step {} not saved: {}", step_, why));
    if (rank_.is_first() && draft_) ckpt::abandon(disk_, *draft_);
  }
  draft_.reset();
  is_saving_ = false;
  set_status({}, "");
}

Checkpointer::Status Checkpointer::status() {
  const std::scoped_lock lock(mutex_);
  return status_;
}

void Checkpointer::set_status(const Status& status, const std::string& problem) {
  const std::scoped_lock lock(mutex_);
  status_ = status;
  problem_ = problem;
  changed_.notify_all();
}

void Checkpointer::join() {
  if (writer_.joinable()) writer_.join();
}

// ---- load

bool Checkpointer::try_load(int64_t step, Loaded& loaded, std::string& problem) {
  try {
    const ckpt::Generation generation =
        ckpt::Generation::open(disk_, options_.folder / ckpt::generation_name(step));
    load_state(engine_, model_, rank_.coord(), generation);
    const ckpt::Manifest& manifest = generation.manifest();
    loaded = {step, manifest.state, manifest.plan, generation.folder()};
    engine_.set_step_state(step_state_from(loaded.state.at("clipping")));
    return true;
  } catch (const base::Error& error) {
    problem = error.what();
  } catch (const base::Json::exception& error) {
    problem = fmt::format("state in the manifest: {}", error.what());
  }
  return false;
}

std::string Checkpointer::difference(int64_t step) {
  const ckpt::Generation generation =
      ckpt::Generation::open(disk_, options_.folder / ckpt::generation_name(step));
  const std::string own = state_difference(engine_, model_, rank_.coord(), generation);
  const std::vector<uint8_t> all = rank_.gather(static_cast<uint8_t>(own.empty() ? 0 : 1));
  const auto differs = std::find(all.begin(), all.end(), uint8_t{1});
  if (differs == all.end()) return {};
  return own.empty() ? fmt::format("what rank {} has", differs - all.begin()) : own;
}

std::optional<Checkpointer::Loaded> Checkpointer::load(const Wanted& wanted) {
  const int64_t step = wanted.step;
  std::vector<int64_t> candidates;
  if (rank_.is_first()) {
    candidates = ckpt::committed_steps(disk_, options_.folder);
    if (step >= 0) {
      std::erase_if(candidates, [step](int64_t candidate) { return candidate != step; });
    }
    if (wanted.below >= 0) {
      std::erase_if(candidates, [&](int64_t candidate) { return candidate >= wanted.below; });
    }
  }
  const auto count = rank_.gather(static_cast<int64_t>(candidates.size())).front();
  for (int64_t i = 0; i < count; ++i) {
    const int64_t own = rank_.is_first() ? candidates[static_cast<size_t>(i)] : 0;
    const int64_t tried = rank_.gather(own).front();
    Loaded loaded;
    std::string problem;
    const std::vector<bool> are_good = [&] {
      const std::vector<uint8_t> said =
          rank_.gather(static_cast<uint8_t>(try_load(tried, loaded, problem) ? 1 : 0));
      return std::vector<bool>(said.begin(), said.end());
    }();
    if (std::find(are_good.begin(), are_good.end(), false) == are_good.end()) {
      engine_.state_changed();
      return loaded;
    }
    if (!problem.empty()) say_(fmt::format("checkpoint of step {} skipped: {}", tried, problem));
  }
  if ((count == 0 && step < 0) || !wanted.is_needed) return {};
  throw base::IoError(
      count == 0
          ? fmt::format("{}: there is no checkpoint of step {}", options_.folder.string(), step)
          : fmt::format("{}: none of {} checkpoint{} can be loaded", options_.folder.string(),
                        count, count == 1 ? "" : "s"));
}

void Checkpointer::begin_run(int64_t step) {
  if (rank_.is_first()) {
    ckpt::remove_leftovers(disk_, options_.folder);
    for (const std::string& name : ckpt::set_aside_newer(disk_, options_.folder, step)) {
      say_(fmt::format("checkpoint of another run set aside as {}",
                       (options_.folder / name).string()));
    }
  }
  rank_.barrier();
}

}  // namespace trireme::train
