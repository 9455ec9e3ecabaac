// SPDX-License-Identifier: Apache-2.0
#include "train/checkpointing/save/commit.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/check.h"
#include "base/error.h"
#include "base/system/start_thread.h"
#include "ckpt/generation/file_sink.h"
#include "obs/clock.h"

namespace trireme::train {

SaveStep next_of(std::span<const SaveStatus> all) {
  const auto is = [all](SavePhase phase) {
    return std::ranges::find(all, phase, &SaveStatus::phase) != all.end();
  };
  if (is(SavePhase::fenced)) return SaveStep::stop;
  if (is(SavePhase::writing) || is(SavePhase::committing)) return SaveStep::wait;
  if (is(SavePhase::failed) || is(SavePhase::durable)) return SaveStep::end;
  return SaveStep::commit;
}

Commit::Commit(Rank& rank, ckpt::Disk& disk, CommitOptions options, ckpt::Manifest manifest)
    : rank_(rank), disk_(disk), options_(std::move(options)), manifest_(std::move(manifest)) {}

Commit::~Commit() { join(); }

void Commit::set_writer(const ckpt::Writer& own) {
  struct WriterBytes {
    std::array<char, 40> run{};
    int64_t epoch = 0;
  } writer;
  TRIREME_CHECK(own.run.size() < writer.run.size(), "run '{}'", own.run);
  std::ranges::copy(own.run, writer.run.begin());
  writer.epoch = own.epoch;
  writer = rank_.gather(writer).front();
  manifest_.writer = {.run = writer.run.data(), .epoch = writer.epoch};
}

void Commit::open_draft() {
  draft_ = ckpt::begin_generation(disk_, options_.folder, manifest_.step, manifest_.writer);
}

std::optional<SaveResult> Commit::open(int64_t step) {
  TRIREME_CHECK(!is_active_, "step {} is being saved", manifest_.step);
  manifest_.step = step;
  // With one rank, only the thread touches the disk.
  if (rank_.is_alone()) return {};
  const std::string start = ckpt::draft_start(step, manifest_.writer);
  int64_t number = -1;
  std::string problem;
  rank_.on_first([&] {
    try {
      open_draft();
      number = std::stoll(draft_->folder.filename().string().substr(start.size()));
    } catch (const base::IoError& error) {
      problem = error.what();
    }
  });
  number = rank_.gather(number).front();
  if (number < 0) return SaveResult{.problem = problem, .files = {}, .not_removed = {}};
  if (!rank_.is_first()) {
    draft_ = ckpt::Draft{.step = step,
                         .writer = manifest_.writer,
                         .root = options_.folder,
                         .folder = options_.folder / fmt::format("{}{}", start, number),
                         .committed = options_.folder / ckpt::generation_name(step)};
  }
  return {};
}

void Commit::start(base::Json state, Store store) {
  is_active_ = true;
  manifest_.files.clear();
  manifest_.state = std::move(state);
  set_status({.phase = SavePhase::writing, .receipt = {}}, "");
  run([this, store = std::move(store)] {
    if (rank_.is_alone()) open_draft();
    SaveStatus status{.phase = SavePhase::written, .receipt = store(*draft_)};
    if (!rank_.is_alone()) return status;
    commit(std::span(&status, 1));
    status.phase = SavePhase::durable;
    return status;
  });
}

void Commit::run(std::function<SaveStatus()> work) {
  join();
  const auto guarded = [this, work = std::move(work)] {
    try {
      set_status(work(), "");
    } catch (const base::Fenced& error) {
      set_status({.phase = SavePhase::fenced, .receipt = {}}, error.what());
    } catch (const std::exception& error) {
      set_status({.phase = SavePhase::failed, .receipt = {}}, error.what());
    }
  };
  try {
    thread_ = base::start_thread("that writes checkpoints", guarded);
  } catch (const base::Error& error) {
    set_status({.phase = SavePhase::failed, .receipt = {}}, error.what());
  }
}

void Commit::commit(std::span<const SaveStatus> all) {
  for (size_t rank = 0; rank < all.size(); ++rank) {
    manifest_.files.push_back(ckpt::file_of(static_cast<int>(rank), all[rank].receipt));
  }
  ckpt::write_tokenizer(disk_, draft_->folder, options_.tokenizer);
  if (options_.claim) options_.claim(manifest_.step);
  ckpt::commit(disk_, *draft_, manifest_, options_.guard);
  durable_at_ = obs::steady_seconds();
  if (options_.retention.latest == 0) return;
  ckpt::Retention retention = options_.retention;
  retention.resumed_from = resumed_from_;
  try {
    ckpt::remove_old(disk_, options_.folder, retention, manifest_.writer.run, options_.guard);
  } catch (const base::IoError& error) {
    not_removed_ = error.what();
  }
}

std::optional<SaveResult> Commit::poll() {
  if (!is_active_) return {};
  const std::vector<SaveStatus> all = rank_.gather(status());
  const SaveStep next = next_of(all);
  if (next == SaveStep::stop) end_fenced();
  if (next == SaveStep::end) return end(all);
  if (next == SaveStep::commit && rank_.is_first()) {
    set_status({.phase = SavePhase::committing, .receipt = {}}, "");
    run([this, all] {
      commit(all);
      return SaveStatus{.phase = SavePhase::durable, .receipt = {}};
    });
  }
  return {};
}

void Commit::end_fenced() {
  join();
  is_active_ = false;
  const std::scoped_lock lock(mutex_);
  throw base::Fenced(!problem_.empty() ? problem_
                                       : "another process has taken the run's folder over");
}

SaveResult Commit::end(std::span<const SaveStatus> all) {
  join();
  const auto failed = std::ranges::find(all, SavePhase::failed, &SaveStatus::phase);
  SaveResult result{.is_durable = failed == all.end(),
                    .problem = problem_,
                    .files = manifest_.files,
                    .not_removed = std::exchange(not_removed_, {})};
  if (result.is_durable) {
    // Ranks that do not commit are notified here.
    result.durable_at = rank_.is_first() ? durable_at_ : obs::steady_seconds();
  } else if (rank_.is_first()) {
    if (problem_.empty()) {
      result.problem = fmt::format("rank {} could not write", failed - all.begin());
    }
    if (draft_) ckpt::abandon(disk_, *draft_);
  }
  draft_.reset();
  is_active_ = false;
  set_status({}, "");
  return result;
}

void Commit::wait() {
  std::unique_lock lock(mutex_);
  // Not longer: this rank must take part in a collective before a deadline of the others passes.
  changed_.wait_for(lock, Rank::heartbeat_interval, [this] {
    return status_.phase != SavePhase::writing && status_.phase != SavePhase::committing;
  });
}

SaveStatus Commit::status() {
  const std::scoped_lock lock(mutex_);
  return status_;
}

void Commit::set_status(const SaveStatus& status, const std::string& problem) {
  const std::scoped_lock lock(mutex_);
  status_ = status;
  problem_ = problem;
  changed_.notify_all();
}

void Commit::join() {
  if (thread_.joinable()) thread_.join();
}

}  // namespace trireme::train
