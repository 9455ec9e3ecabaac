// SPDX-License-Identifier: Apache-2.0
// In-flight counts depend only on the order of a rank's actions, so no time needs to be simulated.
#include <algorithm>

#include "schedule/schedule.h"

namespace trireme::schedule {

std::vector<InFlight> in_flight(const Schedule& schedule) {
  std::vector<InFlight> peaks;
  for (const std::vector<Action>& program : schedule.program) {
    InFlight& peak = peaks.emplace_back();
    InFlight live;
    for (const Action& action : program) {
      switch (action.op) {
        case Op::F:
          ++live.f_to_b;
          ++live.f_to_w;
          break;
        case Op::B:
          --live.f_to_b;
          ++live.b_to_w;
          break;
        case Op::W:
          --live.f_to_w;
          --live.b_to_w;
          break;
        case Op::BW:  // its b_to_w slots are live only while it runs
          peak.b_to_w = std::max(peak.b_to_w, live.b_to_w + 1);
          --live.f_to_b;
          --live.f_to_w;
          break;
        case Op::SendY:
        case Op::RecvX:
        case Op::SendDx:
        case Op::RecvDy:
        case Op::R:
        case Op::ReduceGrads:
        case Op::SyncTied:
          break;
      }
      peak.f_to_b = std::max(peak.f_to_b, live.f_to_b);
      peak.f_to_w = std::max(peak.f_to_w, live.f_to_w);
      peak.b_to_w = std::max(peak.b_to_w, live.b_to_w);
    }
  }
  return peaks;
}

}  // namespace trireme::schedule
