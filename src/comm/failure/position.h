// SPDX-License-Identifier: Apache-2.0
// RankPosition: the progress of a rank in its communications, short enough to be sent to the store
// several times a second. Computed from the flight recorder.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "comm/failure/flight_recorder.h"
#include "comm/failure/motion.h"

namespace trireme::comm {

struct RankPosition {
  struct Call {
    std::string op, group;
    std::vector<int> ranks;  // world ranks of the group
    int64_t sequence = 0;
    int peer = -1;  // send and recv: world rank

    bool is_message() const { return op == "send" || op == "recv"; }
    bool operator==(const Call&) const = default;
  };

  int rank = 0;
  std::string host;
  int64_t process = 0;
  // The oldest call that has begun and is not complete; if there is none, the oldest that waits for
  // the device.
  std::optional<Call> inside;
  bool has_begun = true;         // `inside` is of the former kind
  std::optional<Call> finished;  // the newest complete call
  std::vector<Call> reached;     // the newest collective begun in each group
  bool has_left = false;         // the rank has announced its normal end
  std::optional<Motion> motion;  // none: the rank does not publish its phase

  bool operator==(const RankPosition&) const = default;
};

RankPosition position_of(const FlightRecorder& recorder);
std::string own_host();  // the name of this host, as positions have it

std::string to_text(const RankPosition& position);
// Returns none if the text is not the position of a rank in a run of `world` ranks.
std::optional<RankPosition> position_from(const std::string& text, int world);

// "all_reduce #17 of group 'world'", "recv #3 from rank 2 in group 'pp'".
std::string call_text(const RankPosition::Call& call);

}  // namespace trireme::comm
