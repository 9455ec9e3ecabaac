// SPDX-License-Identifier: Apache-2.0
// FlightRecorder: the last communications of one rank, written into files when a run ends
// abnormally. flight_record.h describes the files.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <filesystem>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/text/json_fwd.h"

namespace trireme::comm {

class FlightRecorder {
 public:
  enum class State : uint8_t { scheduled, started, completed, failed };

  struct Entry {
    int64_t record_id = 0;  // index on this rank, from 0
    // Collectives: index in the group, from 0, the same on all ranks. Send and recv: index of the
    // message from the sender to the receiver.
    int64_t sequence = 0;
    std::string group;       // name
    std::vector<int> ranks;  // world ranks of the group
    std::string op;          // "all_reduce", ...
    std::string dtype;
    int64_t elements = 0, out_elements = 0;  // of input and output
    int64_t bytes = 0;                       // of the input; recv: of the output
    int peer = -1;  // send and recv: world rank of the peer; broadcast: the root
    double deadline_s = 0;
    State state = State::scheduled;
    double scheduled_s = 0, started_s = 0, completed_s = 0;  // since the recorder was created
  };

  // Keeps `capacity` entries of calls that have begun, and those that wait behind them: a host may
  // be many steps ahead of its device. REQUIRES: capacity > 0.
  explicit FlightRecorder(int world_rank, size_t capacity = 1000);

  // Thread-safe. scheduled() returns the id of the entry for the other calls, which ignore entries
  // that are not kept any more.
  int64_t scheduled(Entry);
  void started(int64_t record_id);
  void completed(int64_t record_id);
  void failed(int64_t record_id);

  int world_rank() const { return world_rank_; }
  // Change whenever a call is scheduled; whenever one starts, is complete or fails. On a GPU the
  // host does the former, and the device the latter.
  uint64_t scheduled_calls() const { return scheduled_calls_.load(std::memory_order_relaxed); }
  uint64_t progress() const { return progress_.load(std::memory_order_relaxed); }
  // Oldest first.
  std::vector<Entry> entries() const;
  // Calls `reader` with them; other calls of this object wait meanwhile.
  void read(const std::function<void(const std::deque<Entry>&)>& reader) const;
  // Returns the most recent call among them that is complete.
  std::optional<Entry> last_completed() const;
  base::Json to_json() const;
  // Writes the files of this rank into `folder`, which exists. Throws IoError.
  void write(const std::filesystem::path& folder) const;

 private:
  double now() const;
  // REQUIRE: mutex_ held.
  Entry* find(int64_t record_id);  // null: it is not kept any more
  void begins(Entry& entry, State state);
  void trim();

  const std::chrono::steady_clock::time_point made_;
  const int64_t made_ns_;  // since 1970
  const int world_rank_;
  const size_t capacity_;
  mutable std::mutex mutex_;   // guards entries_, first_ and begun_
  std::deque<Entry> entries_;  // with ids from first_ on
  int64_t first_ = 0;
  size_t begun_ = 0;  // how many of them are not only scheduled
  std::atomic<uint64_t> scheduled_calls_{0}, progress_{0};
};

}  // namespace trireme::comm
