// SPDX-License-Identifier: Apache-2.0
// Commit: turns what the sinks of all ranks have sealed into a generation, or into nothing. A
// thread of each rank stores its state; ranks exchange their status, and once all have a receipt
// the first rank commits, fenced by the run's guard.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "base/text/json.h"
#include "ckpt/generation/folder.h"
#include "ckpt/generation/save.h"
#include "ckpt/generation/tokenizer_copy.h"
#include "ckpt/sink.h"
#include "train/setup/rank.h"

namespace trireme::train {

// The state of a save on a rank, which ranks exchange. Only the first rank commits.
enum class SavePhase : uint8_t { none, writing, written, committing, durable, failed, fenced };
struct SaveStatus {
  SavePhase phase = SavePhase::none;
  ckpt::Receipt receipt;  // from `written` on
};
// What all ranks do next, by the status of all of them. Pure.
enum class SaveStep : uint8_t { wait, commit, end, stop };
SaveStep next_of(std::span<const SaveStatus> all);

struct CommitOptions {
  std::filesystem::path folder;  // contains all generations
  ckpt::Retention retention;     // resumed_from: see set_resumed_from()
  ckpt::Guard guard;             // set on the first rank; empty: no guard
  // Called by the first rank before a generation gets its name, with its step. Throws Fenced if it
  // must not. May be empty.
  std::function<void(int64_t step)> claim;
  std::vector<ckpt::NamedBytes> tokenizer;
};

// How a save ended.
struct SaveResult {
  bool is_durable = false;
  // Why it failed, on the first rank and on those where it did; on others empty.
  std::string problem;
  double durable_at = 0;              // obs::steady_seconds()
  std::vector<ckpt::FileInfo> files;  // on the first rank
  std::string not_removed;  // why older generations could not be removed; empty: they were
};

class Commit {
 public:
  // `manifest` has what all generations have in common. All references must outlive it.
  Commit(Rank&, ckpt::Disk&, CommitOptions, ckpt::Manifest manifest);
  ~Commit();  // waits for the thread

  // The run that saves: the first rank sends it to the others. Collective; before the first save.
  void set_writer(const ckpt::Writer&);
  const ckpt::Manifest& manifest() const { return manifest_; }
  // The step that the run continues from, whose generation is kept until two newer ones exist; -1:
  // none. On the first rank, before the first save.
  void set_resumed_from(int64_t step) { resumed_from_ = step; }

  // ---- a save: open(), start(), then poll() until it returns a result
  // Opens the draft of the generation of `step` on all ranks. Returns the result of a save whose
  // draft could not be created; none: it is open. Collective. REQUIRES: no save is active.
  std::optional<SaveResult> open(int64_t step);
  // Stores the state of a rank in that draft; called on the thread of the writer.
  using Store = std::function<ckpt::Receipt(const ckpt::Draft&)>;
  // Begins to store. An exception from `store`, or a thread that cannot be started, fails the save
  // on all ranks. `state`: for the manifest.
  void start(base::Json state, Store store);
  bool is_active() const { return is_active_; }
  // Commits a save that all ranks have stored. Returns its result once it has ended, on all ranks
  // at the same call. Collective; cheap when none is active. Throws Fenced on all ranks if another
  // process has taken the run's folder over; the draft is left to it.
  std::optional<SaveResult> poll();
  // Waits until this rank has something new for poll(), at most until the next heartbeat.
  void wait();

 private:
  void open_draft();
  SaveStatus status();
  void set_status(const SaveStatus&, const std::string& problem);
  // Runs `work`, which returns the status after it, on the thread.
  void run(std::function<SaveStatus()> work);
  void commit(std::span<const SaveStatus>);
  SaveResult end(std::span<const SaveStatus>);
  [[noreturn]] void end_fenced();
  void join();

  Rank& rank_;
  ckpt::Disk& disk_;
  const CommitOptions options_;
  int64_t resumed_from_ = -1;

  // ---- the save that is active
  ckpt::Manifest manifest_;
  bool is_active_ = false;
  std::optional<ckpt::Draft> draft_;
  std::thread thread_;
  std::mutex mutex_;  // guards status_ and problem_
  std::condition_variable changed_;
  SaveStatus status_;
  std::string problem_;
  // Set by commit() on the thread; read after it has ended.
  double durable_at_ = 0;
  std::string not_removed_;
};

}  // namespace trireme::train
