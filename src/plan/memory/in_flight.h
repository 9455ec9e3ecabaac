// SPDX-License-Identifier: Apache-2.0
// How many micro-batches ranks have under way at one time, read off the schedules that the engine
// runs.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <tuple>
#include <vector>

#include "plan/job.h"

namespace trireme::plan {

struct InFlight {
  // Of one rank. [k]: the most on its first k + 1 stages together.
  using Peaks = std::vector<double>;
  struct Counts {
    Peaks f_to_b, f_to_w;
    Peaks b_to_w;             // where they are apart; else 0
    double last_stage = 1;    // from F until B on the rank's last stage alone
    bool is_merged = true;    // no B and W are apart
    bool runs_pairs = false;  // an F beside a backward
  };
  std::vector<Counts> ranks;  // those of end_ranks(), plan/memory/stage_share.h
};

// The most bytes, or a little more, of stages that have size_of(stage of the rank) each for one
// micro-batch. Stages in front are the larger ones: each counts with what it has over those behind.
template <typename SizeOf>
double peak_bytes(const InFlight::Peaks& peaks, SizeOf size_of) {
  double bytes = 0, behind = 0;
  for (size_t k = peaks.size(); k-- > 0;) {
    const double size = std::max(size_of(k), behind);
    bytes += peaks[k] * (size - behind);
    behind = size;
  }
  return bytes;
}

// Remembers what it was asked for.
class InFlightTable {
 public:
  const InFlight& find(const Layout&, int64_t micro_batches);

 private:
  std::map<std::tuple<int64_t, int, int, Kind>, InFlight> known_;
};

}  // namespace trireme::plan
