// SPDX-License-Identifier: Apache-2.0
#include "train/checkpointing/checkpointer.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <system_error>
#include <utility>

#include "base/error.h"
#include "base/shape.h"
#include "base/text/json.h"
#include "comm/mesh.h"
#include "obs/clock.h"

namespace trireme::train {
namespace {

// Bytes to join split weights in.
int64_t joining_bytes(const spec::Plan& plan) {
  const bool is_split = plan.recipe.has_master() && plan.optimizer.master != base::DType::f32;
  return is_split ? StagedCopy::max_split_elements * static_cast<int64_t>(sizeof(float)) : 0;
}

// The writer of a rank first joins split weights, then writes the file, in the same memory.
int64_t workspace_bytes(const ckpt::FileLayout& layout, const spec::Plan& plan, int rank,
                        const ckpt::IoOptions& io) {
  return std::max(ckpt::Workspace::rounded(joining_bytes(plan)),
                  ckpt::writer_bytes(layout, rank, io));
}

constexpr std::array<engine::Engine::StateKind, 3> state_kinds = {
    engine::Engine::StateKind::weight, engine::Engine::StateKind::first_moment,
    engine::Engine::StateKind::second_moment};

}  // namespace

Checkpointer::Checkpointer(engine::Engine& engine, const spec::ModelSpec& model, Rank& rank,
                           device::Device& device, ckpt::Disk& disk, CheckpointOptions options,
                           CheckpointHooks hooks)
    : engine_(engine),
      model_(model),
      rank_(rank),
      disk_(disk),
      options_(std::move(options)),
      hooks_(std::move(hooks)),
      layout_(ckpt::plan_file(saved_pieces(model, engine.plan(), rank.coord()))),
      memory_(device.make_host_buffer(
          device::Mem::checkpoint,
          memory_bytes(model, engine.plan(), rank.number(), options_.reread), "checkpoints")),
      copy_(device.make_side_stream("checkpoint")),
      // Direct I/O needs page-aligned memory.
      staged_(memory_.data() + (-reinterpret_cast<uintptr_t>(memory_.data()) %
                                static_cast<uintptr_t>(ckpt::page_bytes))),
      workspace_({staged_ + layout_.bytes, static_cast<size_t>(workspace_bytes(
                                               layout_, engine.plan(), rank.number(), io()))}),
      copies_(staged_copies(engine, model, rank.coord(), layout_)) {
  manifest_.plan = spec::to_json(engine.plan());
  for (const engine::Engine::ParamInfo& param : engine.parameters()) {
    for (const auto kind : state_kinds) {
      manifest_.tensors.push_back({state_name(kind, param.name), base::DType::f32, param.shape});
    }
  }
}

Checkpointer::~Checkpointer() { join(); }

// A small file has few transfers in flight: its threads would take the cores from the step.
ckpt::IoOptions Checkpointer::io_of(const ckpt::FileLayout& layout, bool reread) {
  constexpr int64_t bytes_by_transfer = int64_t{32} << 20;
  ckpt::IoOptions options{.reread = reread};
  const int64_t wanted = 1 + layout.bytes / bytes_by_transfer;
  options.queue_depth = static_cast<int>(std::min<int64_t>(options.queue_depth, wanted));
  return options;
}

int64_t Checkpointer::memory_bytes(const spec::ModelSpec& model, const spec::Plan& plan, int rank,
                                   bool reread) {
  const ckpt::FileLayout layout =
      ckpt::plan_file(saved_pieces(model, plan, comm::coord_of(plan.mesh, rank)));
  return ckpt::page_bytes + layout.bytes +
         workspace_bytes(layout, plan, rank, io_of(layout, reread));
}

int64_t Checkpointer::file_bytes() const {
  const int64_t chunks = (layout_.bytes + ckpt::chunk_bytes - 1) / ckpt::chunk_bytes;
  return layout_.bytes + ckpt::index_text_bytes({.rank = rank_.number(),
                                                 .data_bytes = layout_.bytes,
                                                 .tensors = layout_.tensors,
                                                 .chunks = {}},
                                                chunks);
}

int64_t Checkpointer::manifest_bytes(const base::Json& state) const {
  ckpt::Manifest manifest = manifest_;
  manifest.state = state;
  manifest.state["clipping"] = to_json(kernels::StepState{});
  manifest.writer = {.run = std::string(16, '0'), .epoch = 1};  // not known yet
  for (int rank = 0; rank < rank_.ranks(); ++rank) {
    manifest.files.push_back(
        {.rank = rank, .data_bytes = layout_.bytes, .index_bytes = file_bytes() - layout_.bytes});
  }
  return static_cast<int64_t>(ckpt::to_text(manifest).size());
}

int64_t Checkpointer::used_bytes() const {
  int64_t staged = 0;
  for (const StagedCopy& copy : copies_) staged = std::max(staged, copy.to + copy.bytes());
  return ckpt::page_bytes + base::round_up(staged, ckpt::page_bytes) + workspace_.high_water();
}

void Checkpointer::save(int64_t step, const base::Json& state) {
  const double called = obs::steady_seconds();
  finish();
  const double waited = obs::steady_seconds() - called;
  // The host is ahead of the device: waiting here delays no step.
  const base::Json clipping = to_json(engine_.step_state());
  began_ = obs::steady_seconds();
  // With one rank, only the writer thread touches the disk.
  if (!rank_.is_alone() && !begin_together(step)) return;
  is_saving_ = true;
  step_ = step;
  manifest_.step = step;
  manifest_.files.clear();
  manifest_.state = state;
  manifest_.state["clipping"] = clipping;
  // Copies the state as it is after all queued work; the next update waits for the copies.
  engine_.flush_updates();
  copy_->wait(engine_.compute().record());
  for (const StagedCopy& copy : copies_) copy.start(*copy_, staged_);
  engine_.hold_state(copy_->record());
  set_status({.phase = Phase::writing, .file = {}}, "");
  start([this] {
    if (rank_.is_alone()) {
      draft_ = ckpt::begin_generation(disk_, options_.folder, step_, manifest_.writer);
    }
    const Status written{.phase = Phase::written, .file = write()};
    if (!rank_.is_alone()) return written;
    commit({written});
    return Status{.phase = Phase::durable, .file = written.file};
  });
  stall_seconds_ = waited + obs::steady_seconds() - began_;
  figures_.stall_seconds += stall_seconds_;
}

bool Checkpointer::begin_together(int64_t step) {
  int64_t number = -1;
  std::string problem;
  rank_.on_first([&] {
    try {
      draft_ = ckpt::begin_generation(disk_, options_.folder, step, manifest_.writer);
      const std::string name = draft_->folder.filename().string();
      number = std::stoll(name.substr(ckpt::draft_start(step, manifest_.writer).size()));
    } catch (const base::IoError& error) {
      problem = error.what();
    }
  });
  number = rank_.gather(number).front();
  if (number < 0) {
    ++figures_.failed;
    if (rank_.is_first())
      hooks_.log(fmt::format("checkpoint of step {} not saved: {}", step, problem));
    return false;
  }
  if (!rank_.is_first()) {
    const std::string name = fmt::format("{}{}", ckpt::draft_start(step, manifest_.writer), number);
    draft_ = ckpt::Draft{.step = step,
                         .writer = manifest_.writer,
                         .root = options_.folder,
                         .folder = options_.folder / name,
                         .committed = options_.folder / ckpt::generation_name(step)};
  }
  return true;
}

void Checkpointer::start(std::function<Status()> work) {
  join();
  const auto run = [this, work = std::move(work)] {
    try {
      copy_->device().use_on_this_thread();
      set_status(work(), "");
    } catch (const base::Fenced& error) {
      set_status({.phase = Phase::fenced, .file = {}}, error.what());
    } catch (const std::exception& error) {
      set_status({.phase = Phase::failed, .file = {}}, error.what());
    }
  };
  try {
    writer_ = std::thread(run);
  } catch (const std::system_error& error) {
    set_status({.phase = Phase::failed, .file = {}},
               fmt::format("the writer thread cannot be started: {}", error.what()));
  }
}

ckpt::FileInfo Checkpointer::write() {
  copy_->synchronize();
  workspace_.clear();  // of the save before
  const auto joining = workspace_.take(joining_bytes(engine_.plan()));
  for (const StagedCopy& copy : copies_) copy.finish(staged_, joining);
  workspace_.clear();
  return ckpt::write_data(disk_,
                          {.folder = draft_->folder,
                           .rank = rank_.number(),
                           .layout = layout_,
                           .bytes = {staged_, static_cast<size_t>(layout_.bytes)},
                           .workspace = &workspace_},
                          io());
}

void Checkpointer::commit(const std::vector<Status>& all) {
  for (const Status& status : all) manifest_.files.push_back(status.file);
  ckpt::commit(disk_, *draft_, manifest_, options_.guard);
  durable_at_ = obs::steady_seconds();
  if (options_.keep == 0) return;
  try {
    ckpt::remove_old(disk_, options_.folder, options_.keep, manifest_.writer.run, options_.guard);
  } catch (const base::IoError& error) {
    not_removed_ = error.what();
  }
}

void Checkpointer::poll() {
  if (!is_saving_) return;
  const std::vector<Status> all = rank_.gather(status());
  const auto is = [&all](Phase phase) {
    return std::any_of(all.begin(), all.end(),
                       [phase](const Status& status) { return status.phase == phase; });
  };
  if (is(Phase::fenced)) throw_fenced();
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

// Leaves the draft to the process that took over: it owns the folder now.
void Checkpointer::throw_fenced() {
  join();
  copy_->synchronize();
  is_saving_ = false;
  const std::scoped_lock lock(mutex_);
  throw base::Fenced(!problem_.empty() ? problem_
                                       : "another process has taken the run's folder over");
}

void Checkpointer::finish() {
  while (is_saving_) {
    {
      std::unique_lock lock(mutex_);
      // Not longer: this rank must take part in a collective before a deadline of the others
      // passes.
      changed_.wait_for(lock, Rank::heartbeat_interval, [this] {
        return status_.phase != Phase::writing && status_.phase != Phase::committing;
      });
    }
    poll();
    // Other ranks may still be writing.
    if (is_saving_ && !rank_.is_alone()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

void Checkpointer::end_save(const std::vector<Status>& all) {
  join();
  copy_->synchronize();  // a save that failed early left copies behind
  const auto failed = std::find_if(
      all.begin(), all.end(), [](const Status& status) { return status.phase == Phase::failed; });
  if (failed == all.end()) {
    ++figures_.saves;
    if (!not_removed_.empty()) {
      hooks_.log(fmt::format("checkpoint of step {} saved, but older ones not removed: {}", step_,
                             std::exchange(not_removed_, {})));
    }
    figures_.bytes += layout_.bytes;
    // Ranks that do not commit are notified here.
    const double durable_at = rank_.is_first() ? durable_at_ : obs::steady_seconds();
    figures_.durable_seconds = durable_at - began_;
    if (rank_.is_first() && hooks_.saved) {
      SavedGeneration saved{.step = step_,
                            .stall_seconds = stall_seconds_,
                            .durable_seconds = figures_.durable_seconds};
      for (const ckpt::FileInfo& file : manifest_.files) {
        saved.bytes += file.data_bytes + file.index_bytes;
      }
      hooks_.saved(saved);
    }
  } else {
    ++figures_.failed;
    const std::string why =
        !problem_.empty() ? problem_ : fmt::format("rank {} could not write", failed - all.begin());
    if (rank_.is_first() || !problem_.empty()) {
      hooks_.log(fmt::format("checkpoint of step {} not saved: {}", step_, why));
    }
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

}  // namespace trireme::train
