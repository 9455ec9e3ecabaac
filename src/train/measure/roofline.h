// SPDX-License-Identifier: Apache-2.0
// The roofline of a step: FLOPs, bytes and time of each family of kernels, whether compute or
// memory bounds it, and how near it is to that bound.
#pragma once

#include <string>
#include <vector>

#include "base/text/json_fwd.h"
#include "train/report/peaks.h"
#include "train/trace/op_timeline.h"

namespace trireme::train {

struct FamilyTime {
  std::string name;                          // "gemm nt", "attention backward", "norm"
  double flops = 0, bytes = 0, seconds = 0;  // of one step
};

// Returns the means over `steps` observed steps, the longest family first.
std::vector<FamilyTime> family_times(const std::vector<TimedOp>& ops, int64_t steps);

// A family is bound by compute if its FLOPs at the peak take longer than its bytes at the
// bandwidth. Bytes are compulsory traffic: each operand once.
struct Roofline {
  std::vector<FamilyTime> families;
  Peak flops, bandwidth;

  bool is_compute_bound(const FamilyTime&) const;
  double bound_seconds(const FamilyTime&) const;
  double step_seconds() const;  // sum of the families

  base::Json json() const;
};

}  // namespace trireme::train
