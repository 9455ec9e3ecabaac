// SPDX-License-Identifier: Apache-2.0
// `trireme plan --tokens N --deadline DAYS`: the fewest GPUs that finish a run in time.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/text/json_fwd.h"
#include "cli/plan/plan_report.h"
#include "cli/shell/args.h"

namespace trireme::cli {

// A number of GPUs that was tried.
struct GpuTrial {
  int64_t gpus = 0;
  PlanQuestion question;
  std::optional<PlannedLayout> planned;  // the answer with these GPUs; none: nothing fits
  std::string reason;                    // why they are not enough; empty: they are
};

struct DeadlineReport {
  PlanQuestion question;  // with one GPU
  double days = 0;        // until the deadline
  // GPUs below this number were not searched: `ruled_out` states why.
  int64_t first_gpus = 1;
  std::string ruled_out;
  std::vector<GpuTrial> trials;  // in the order of their GPUs; the last may be the answer

  const GpuTrial* answer() const {
    return !trials.empty() && trials.back().reason.empty() ? &trials.back() : nullptr;
  }
};

// Returns the days from `now` (seconds since 1970) until a deadline: a number of days, or the start
// of a day as 2027-01-31 (UTC). Throws ConfigError.
double days_until(std::string_view deadline, double now);

// Numbers of GPUs that are tried are those of whole domains, or below one of them, times 1, 3, 5 or
// 7 and a power of two; --gpus is the largest.
DeadlineReport plan_deadline(const Args&, const plan::PlanProgress&);
std::string deadline_text(const DeadlineReport&);
base::Json deadline_json(const DeadlineReport&);

}  // namespace trireme::cli
