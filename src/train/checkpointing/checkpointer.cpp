// SPDX-License-Identifier: Apache-2.0
#include "train/checkpointing/checkpointer.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/error.h"
#include "base/system/start_thread.h"
#include "base/text/json.h"
#include "obs/clock.h"

namespace trireme::train {

Checkpointer::~Checkpointer() { join(); }

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
  snapshot_.begin(staged_);
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
    if (rank_.is_first()) {
      hooks_.log(fmt::format("checkpoint of step {} not saved: {}", step, problem));
      if (hooks_.failed) hooks_.failed(step, problem);
    }
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
      snapshot_.device().use_on_this_thread();
      set_status(work(), "");
    } catch (const base::Fenced& error) {
      set_status({.phase = Phase::fenced, .file = {}}, error.what());
    } catch (const std::exception& error) {
      set_status({.phase = Phase::failed, .file = {}}, error.what());
    }
  };
  try {
    writer_ = base::start_thread("that writes checkpoints", run);
  } catch (const base::Error& error) {
    set_status({.phase = Phase::failed, .file = {}}, error.what());
  }
}

ckpt::FileInfo Checkpointer::write() {
  snapshot_.wait();
  workspace_.clear();  // of the save before
  const auto joining = workspace_.take(joining_bytes(engine_.plan()));
  snapshot_.finish(staged_, joining);
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
  ckpt::write_tokenizer(disk_, draft_->folder, options_.tokenizer);
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
  snapshot_.wait();
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
  snapshot_.wait();  // a save that failed early left copies behind
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
    if (rank_.is_first() && hooks_.failed) hooks_.failed(step_, why);
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
