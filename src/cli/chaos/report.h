// SPDX-License-Identifier: Apache-2.0
// The report of `trireme chaos`: as text and as JSON.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/text/json.h"
#include "cli/chaos/evaluation.h"

namespace trireme::cli {

// What processes held before the first disturbance and after the last one.
struct UseChange {
  ProcessUse begin, end;
  bool is_known = false;
};

struct ChaosReport {
  uint64_t seed = 0;
  int ranks = 0;
  int64_t planned = 0, steps = 0;
  std::vector<DisturbanceResult> results;
  StepDifferences differences;
  double longest_gap = 0;
  double seconds = 0;                  // of the disturbed run
  int exit_code = 0;                   // of the launcher of the disturbed run
  std::string weights, quiet_weights;  // SHA-256; empty: there are none
  UseChange launcher, rank_processes;

  int64_t done() const { return static_cast<int64_t>(results.size()); }
  bool are_weights_equal() const { return !weights.empty() && weights == quiet_weights; }
  // Whether all disturbances were done, the run has ended well, its bits are those of the quiet
  // run, and no sample was lost or doubled. Times and names are not part of it.
  bool is_good() const;
  int64_t count(Naming) const;
};

std::string to_text(const ChaosReport&);
base::Json to_json(const ChaosReport&);

}  // namespace trireme::cli
