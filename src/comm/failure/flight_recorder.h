// SPDX-License-Identifier: Apache-2.0
// FlightRecorder: the last communications of one rank, kept in a ring, written into files when a
// run ends abnormally. flight_record.h describes the files.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <filesystem>
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

  // REQUIRES: capacity > 0.
  explicit FlightRecorder(int world_rank, size_t capacity = 1000);

  // Thread-safe. scheduled() returns the id of the entry for the other calls, which ignore entries
  // that have left the ring.
  int64_t scheduled(Entry);
  void started(int64_t record_id);
  void completed(int64_t record_id);
  void failed(int64_t record_id);

  int world_rank() const { return world_rank_; }
  // Changes whenever a call is scheduled, starts, is complete or fails.
  uint64_t changes() const { return changes_.load(std::memory_order_relaxed); }
  // Oldest first.
  std::vector<Entry> entries() const;
  // Returns the most recent call in the ring that is complete.
  std::optional<Entry> last_completed() const;
  base::Json to_json() const;
  // Writes the files of this rank into `folder`, which exists. Throws IoError.
  void write(const std::filesystem::path& folder) const;

 private:
  double now() const;
  Entry* find(int64_t record_id);  // REQUIRES: mutex_ held. Null: it has left the ring

  const std::chrono::steady_clock::time_point made_;
  const int64_t made_ns_;  // since 1970
  const int world_rank_;
  const size_t capacity_;
  mutable std::mutex mutex_;  // guards ring_ and next_
  std::vector<Entry> ring_;   // entry i is at i % capacity_
  int64_t next_ = 0;
  std::atomic<uint64_t> changes_{0};
};

}  // namespace trireme::comm
