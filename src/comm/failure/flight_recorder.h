// SPDX-License-Identifier: Apache-2.0
// FlightRecorder: the last communications of one rank, kept in a ring, written into files when a
// run ends abnormally. flight_record.h describes the files.
#pragma once

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
    int64_t record_id = 0;  // of this rank, from 0
    // Of collectives: number in the group, from 0, the same on all ranks. Of send and recv: number
    // of the message from the one rank to the other.
    int64_t sequence = 0;
    std::string group;       // name
    std::vector<int> ranks;  // of the world, in the group
    std::string op;          // "all_reduce", ...
    std::string dtype;
    int64_t elements = 0, out_elements = 0;  // of what goes in and of what comes out
    int64_t bytes = 0;                       // of what goes in; of recv: of what comes out
    int peer = -1;  // of send and recv, rank of the world; of broadcast the root
    double deadline_s = 0;
    State state = State::scheduled;
    double scheduled_s = 0, started_s = 0, completed_s = 0;  // since the recorder was made
  };

  // REQUIRES: capacity > 0.
  explicit FlightRecorder(int world_rank, size_t capacity = 1000);

  // Thread-safe. The id names the entry in later calls; one that has left the ring is ignored.
  int64_t scheduled(Entry);
  void started(int64_t record_id);
  void completed(int64_t record_id);
  void failed(int64_t record_id);

  int world_rank() const { return world_rank_; }
  // Oldest first.
  std::vector<Entry> entries() const;
  // Of the calls in the ring, the last made that is complete.
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
};

}  // namespace trireme::comm
