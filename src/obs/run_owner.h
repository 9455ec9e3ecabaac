// SPDX-License-Identifier: Apache-2.0
// RunOwner: the one process that may write to a run's folder.
//
// RUN/owner.json contains the run (an id that is kept when the run is resumed), the epoch (how
// often the folder changed its owner) and the process that holds it. A process that begins or
// resumes a run
//
//   1. holds the folder (hold()), which is refused while the holder is alive, stopped or not;
//   2. makes its checks; nothing in the folder has changed so far;
//   3. begins (begin()): the epoch is incremented, durably;
//   4. writes the first files of the run and releases the lock (begun()).
//
// From then on every older holder is fenced: guarded() throws base::Fenced instead of writing. A
// lock on RUN/owner.lock makes steps 1 to 4 and guarded() mutually exclusive.
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

// The content of owner.json.
struct OwnerRecord {
  std::string run;      // 16 hexadecimal digits
  int64_t epoch = 0;    // from 1
  int64_t attempt = 0;  // counts starts of this run, from 1
  std::string host;     // for messages
  std::string machine;  // equal for all processes that share process ids
  int64_t process = 0;
  int64_t process_start = 0;  // in clock ticks since boot; distinguishes re-used process ids
  double since = 0;           // wall clock
  bool is_released = false;   // its holder ended normally
};
// Returns none if the folder has no owner.json; throws IoError if it is damaged.
std::optional<OwnerRecord> read_owner(const std::filesystem::path& folder);
// Returns whether the process that holds a folder exists. Returns nothing if the record was written
// on another machine, where only the age of the lease tells. Changes no file.
std::optional<bool> is_holder_alive(const OwnerRecord& record);

class RunOwner {
 public:
  static constexpr const char* record_name = "owner.json";
  static constexpr const char* lock_name = "owner.lock";
  // A holder on another host renews its lease far more often than this.
  static constexpr double lease_seconds = 60;

  struct Options {
    bool takes_over = false;   // also from a live holder
    double wait_seconds = 10;  // for another process that is just starting or committing
    double renew_seconds = 5;
  };

  // Throws IoError with the holder if the folder is held. Creates the folder if it is missing and
  // removes it again unless begin() is called.
  static std::unique_ptr<RunOwner> hold(const std::filesystem::path& folder,
                                        const Options& options = {.takes_over = false,
                                                                  .wait_seconds = 10,
                                                                  .renew_seconds = 5});
  // Returns why hold() would refuse now; empty if it would not. Changes nothing.
  static std::string refusal(const std::filesystem::path& folder, bool takes_over);

  class Key {  // only hold() creates one
    friend class RunOwner;
    Key() = default;
  };
  RunOwner(Key, std::filesystem::path folder, const Options& options);
  ~RunOwner();  // releases the folder if this process still owns it
  RunOwner(const RunOwner&) = delete;
  RunOwner& operator=(const RunOwner&) = delete;

  // Returns the previous record; none if the folder had no owner.
  const std::optional<OwnerRecord>& previous() const { return previous_; }

  // Increments the epoch. Continues `run`, or starts a new run if it is empty. Throws IoError.
  // Called once.
  void begin(const std::string& run);
  // Called once when the first files of the run are written: other processes may use hold() again.
  // REQUIRES: after begin().
  void begun();
  // REQUIRES: after begin().
  const std::string& run() const { return record_.run; }
  int64_t epoch() const { return record_.epoch; }
  int64_t attempt() const { return record_.attempt; }

  // Returns whether another process has taken over the folder. Cheap; any thread. REQUIRES: after
  // begin().
  bool is_fenced() const;
  // Calls `write` while no other process can take over. Throws base::Fenced if one has. Any thread.
  // Until begun() this process already has the lock. REQUIRES: after begin().
  void guarded(const std::function<void()>& write) const;

 private:
  void renew();

  const std::filesystem::path folder_;
  const Options options_;
  std::vector<std::filesystem::path> made_folders_;  // created by hold(), the innermost first
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
