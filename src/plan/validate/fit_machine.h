// SPDX-License-Identifier: Apache-2.0
// Fits the constants of a machine to measured times of operations: minimises the mean of
// |ln(predicted / measured)|, with predictions of plan/price/op_time.h and
// plan/price/collective.h. For streaming operations the total time of all rows counts most.
#pragma once

#include <vector>

#include "plan/price/collective.h"
#include "plan/price/op_time.h"
#include "spec/machine.h"

namespace trireme::plan {

struct TimedProduct {
  Product product;
  Precision precision = Precision::bf16;
  double seconds = 0;
};
struct TimedAttention {
  Attention attention;
  double seconds = 0;
};
struct TimedStream {  // a memory-bound operation
  double bytes = 0;
  double seconds = 0;
};
struct TimedCollective {
  Collective kind = Collective::all_reduce;
  Group group;  // in one domain
  double bytes = 0;
  double seconds = 0;
};
struct Times {
  std::vector<TimedProduct> products;
  std::vector<TimedAttention> attention;
  std::vector<TimedStream> streams;
  std::vector<TimedCollective> collectives;
};

// Returns the machine with the constants that the times determine, and their residuals:
//   products     gemm_reach, gemm_ramp, launch_seconds; accumulate_factor if some accumulate
//   streams      memory_reach, launch_seconds
//   attention    attention_forward, _backward; _ramp if there are several lengths, _head if there
//                are several head sizes up to 128; _fixed_order if there are backward passes with
//                sums in a fixed order and others
//   collectives  the domain's link, with reach 1
// All other fields, peaks and sizes included, stay as they are. The fit starts from the given
// values, and no reach becomes larger than 1.
// REQUIRES: all seconds, and the peaks and bandwidths that the times need, are above 0.
spec::Machine fit_machine(spec::Machine machine, const Times& times);

}  // namespace trireme::plan
