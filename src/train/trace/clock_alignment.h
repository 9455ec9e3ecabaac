// SPDX-License-Identifier: Apache-2.0
// Brings the times of all ranks onto the clock of the first rank. Ranks of one machine have the
// same host clock. The clock of another machine is shifted so that collectives that it shares with
// machines already aligned end at the same time, in the median; without such collectives, so that
// traced steps, which begin with a barrier, begin at the same time.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "train/trace/rank_trace.h"

namespace trireme::train {

struct ClockOffset {
  int64_t offset_ns = 0;  // add it to a time of the rank
  // Half the range of the middle 80 % of what shared collectives give, and the errors of the device
  // clocks. None: it is not known.
  std::optional<int64_t> error_ns;
  std::string_view method;  // "host clock", "ends of collectives", "barrier"
};

// Returns the offsets by rank. REQUIRES: traces are ordered by rank, and there is at least one.
std::vector<ClockOffset> align_clocks(const std::vector<RankTrace>&);

}  // namespace trireme::train
