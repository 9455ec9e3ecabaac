// SPDX-License-Identifier: Apache-2.0
// RankPosition: where a rank stands in its communications, short enough to be told to the store
// several times a second. Made from the flight recorder.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "comm/failure/flight_recorder.h"

namespace trireme::comm {

struct RankPosition {
  struct Call {
    std::string op, group;
    std::vector<int> ranks;  // of the world, in the group
    int64_t sequence = 0;
    int peer = -1;  // of send and recv, rank of the world

    bool is_message() const { return op == "send" || op == "recv"; }
    bool operator==(const Call&) const = default;
  };

  int rank = 0;
  std::string host;
  int64_t process = 0;
  std::optional<Call> inside;    // the oldest call that is not complete
  std::optional<Call> finished;  // the newest that is
  std::vector<Call> reached;     // of every group the newest collective that was begun
  bool has_left = false;         // the rank said that it ends

  bool operator==(const RankPosition&) const = default;
};

RankPosition position_of(const FlightRecorder& recorder);

std::string to_text(const RankPosition& position);
// None if the text is not one of a run of `world` ranks.
std::optional<RankPosition> position_from(const std::string& text, int world);

// "all_reduce #17 of group 'world'", "recv #3 from rank 2 in group 'pp'".
std::string call_text(const RankPosition::Call& call);

}  // namespace trireme::comm
