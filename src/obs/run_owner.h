// SPDX-License-Identifier: Apache-2.0
// RunOwner: the one process that may write to a run's folder.
//
// RUN/owner.json names the run (an id that stays over resumes), the epoch (how often the folder
// changed hands) and the process that holds it. A process that begins or resumes a run
//
//   1. holds the folder (hold()): it is refused while the holder lives, stopped or not;
//   2. checks whatever it likes; nothing in the folder has changed so far;
//   3. begins (begin()): the epoch is raised, durably;
//   4. writes the files that a run begins with, and lets others in again (begun()).
//
// From then on every older holder is fenced: guarded() throws base::Fenced instead of calling.
// Steps 1 to 4 and guarded() exclude each other by a lock on RUN/owner.lock.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/system/descriptor.h"
#include "obs/clock.h"

namespace trireme::obs {

// What owner.json holds.
struct OwnerRecord {
  std::string run;      // 16 hexadecimal digits
  int64_t epoch = 0;    // from 1
  int64_t attempt = 0;  // counts starts of this run, from 1
  std::string host;     // for messages
  std::string machine;  // equal on all processes that see the same process numbers
  int64_t process = 0;
  int64_t process_start = 0;  // in clock ticks since the machine started; tells re-used numbers
  double since = 0;           // wall clock
  bool is_released = false;   // its holder ended in order
};
// None if the folder has no owner.json; throws IoError if it is damaged.
std::optional<OwnerRecord> read_owner(const std::filesystem::path& folder);

class RunOwner {
 public:
  static constexpr const char* record_name = "owner.json";
  static constexpr const char* lock_name = "owner.lock";
  // A holder on another host renews its lease far more often than this.
  static constexpr double lease_seconds = 60;

  struct Options {
    bool takes_over = false;   // also from a holder that lives
    double wait_seconds = 10;  // for another process that is just starting or committing
    double renew_seconds = 5;
  };

  // Throws IoError, naming the holder, if the folder is held. Makes the folder if it is missing;
  // unless begin() is called, it goes again.
  static std::unique_ptr<RunOwner> hold(const std::filesystem::path& folder,
                                        const Options& options = {.takes_over = false,
                                                                  .wait_seconds = 10,
                                                                  .renew_seconds = 5});
  // The reason why hold() would refuse now; empty: it would not. Changes nothing.
  static std::string refusal(const std::filesystem::path& folder, bool takes_over);

  class Key {  // only hold() makes one
    friend class RunOwner;
    Key() = default;
  };
  RunOwner(Key, std::filesystem::path folder, const Options& options);
  ~RunOwner();  // releases the folder if it is still this process's
  RunOwner(const RunOwner&) = delete;
  RunOwner& operator=(const RunOwner&) = delete;

  // The record that was there; none: the folder had no owner.
  const std::optional<OwnerRecord>& previous() const { return previous_; }

  // Raises the epoch. `run` continues that run; empty: a new one. Throws IoError. Once.
  void begin(const std::string& run);
  // The run's first files are written: another process may look at the folder again. Once.
  // REQUIRES: after begin().
  void begun();
  // REQUIRES: after begin().
  const std::string& run() const { return record_.run; }
  int64_t epoch() const { return record_.epoch; }
  int64_t attempt() const { return record_.attempt; }

  // Has another process taken the folder over? Cheap; any thread. REQUIRES: after begin().
  bool is_fenced() const;
  // Calls `write` while no other process can take over. Throws base::Fenced if one has. Any thread.
  // Until begun() the lock is this process's already. REQUIRES: after begin().
  void guarded(const std::function<void()>& write) const;

 private:
  void renew();

  const std::filesystem::path folder_;
  const Options options_;
  std::vector<std::filesystem::path> made_folders_;  // by hold(), the innermost first
  bool made_lock_ = false;
  std::optional<base::Descriptor> held_;  // the lock, from hold() to begun()
  std::optional<OwnerRecord> previous_;
  OwnerRecord record_;
  std::optional<base::Descriptor> own_file_;  // the record as this process wrote it

  std::mutex mutex_;  // guards is_ending_
  std::condition_variable changed_;
  bool is_ending_ = false;
  std::thread renewing_;
};

}  // namespace trireme::obs
