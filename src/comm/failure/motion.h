// SPDX-License-Identifier: Apache-2.0
// Motion: whether a rank moves, as it reports with its heartbeats. A rank whose heartbeat thread
// lives may still hang. MotionWatch is pure: what the rank shows and the time are arguments.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>

#include "base/system/rank_activity.h"
#include "comm/failure/flight_recorder.h"

namespace trireme::comm {

struct Motion {
  std::string phase;   // what the rank does: "step", "data", "compile"
  double still_s = 0;  // for which nothing has moved in it
  double limit_s = 0;  // a rank that is still for longer hangs; 0: no limit
  int64_t step = 0;    // that it computes, or has finished

  bool operator==(const Motion&) const = default;
};

class MotionWatch {
 public:
  struct Look {
    std::string phase;
    bool has_limit = false;  // the phase is one of steps that take about equally long
    int64_t step = 0;        // as in Motion
    int64_t steps = 0;       // changes with every step that is done
    uint64_t moves = 0;      // changes with every op, and with every call that begins or ends
  };
  // To be called many times a second. A rank is still while neither phase nor steps nor moves
  // change. The limit is five times the 99th percentile of the time of steps, at least 2 s; there
  // is none in a phase without limit and before 20 steps were seen in succession.
  Motion look(const Look& look, double now);

 private:
  double limit() const;

  std::optional<Look> last_;
  double looked_at_ = 0, moved_at_ = 0, step_at_ = 0;
  bool is_whole_ = false;     // the current step began in the current phase
  std::deque<double> steps_;  // their times, newest last
};

// Returns what a rank shows by its activity and its calls. While its device has work of steps to
// do, only what the device does is a move, and the rank counts as being in a step: the host may
// queue many steps behind a kernel that does not end, or wait outside of steps for the device. None
// if the rank publishes no phase.
std::optional<MotionWatch::Look> look_at(const base::RankActivity&, const FlightRecorder&);

}  // namespace trireme::comm
