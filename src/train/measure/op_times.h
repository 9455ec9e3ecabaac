// SPDX-License-Identifier: Apache-2.0
// Time by operation and shape, from the events of observed steps.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "train/trace/op_timeline.h"

namespace trireme::train {

// The sums over all calls of one operation with one shape.
struct OpTime {
  std::string name;  // "gemm nt 512x384x384"
  double seconds = 0, flops = 0, bytes = 0;
  int64_t count = 0;
};
// Returns one entry for each operation and shape, the longest first.
std::vector<OpTime> op_times(const std::vector<TimedOp>& ops);

}  // namespace trireme::train
