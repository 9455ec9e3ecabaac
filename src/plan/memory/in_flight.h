// SPDX-License-Identifier: Apache-2.0
// The number of micro-batches in flight on each rank, counted in the schedules that the engine
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
  // Entry k is the peak over a rank's first k + 1 stages together.
  using Peaks = std::vector<double>;
  struct Counts {
    Peaks f_to_b, f_to_w;
    Peaks b_to_w;             // 0 if backward is merged
    double last_stage = 1;    // peak of f_to_b on the rank's last stage alone
    bool is_merged = true;    // backward is never split into B and W
    bool runs_pairs = false;  // some F runs together with a backward
  };
  std::vector<Counts> ranks;  // those of end_ranks(), plan/memory/stage_share.h
};

// Returns the peak bytes, or a little more, if one micro-batch needs size_of(k) on stage k of the
// rank. Earlier stages are the larger ones: each adds the bytes by which it exceeds later stages.
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

// Computes InFlight, and caches the results.
class InFlightTable {
 public:
  const InFlight& find(const Layout&, int64_t micro_batches);

 private:
  std::map<std::tuple<int64_t, int, int, Kind>, InFlight> known_;
};

}  // namespace trireme::plan
