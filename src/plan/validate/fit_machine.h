// SPDX-License-Identifier: Apache-2.0
// From measured times to the constants of a machine: those with which plan/price/op_time.h and
// plan/price/collective.h come nearest to the times, in the mean of absolute logarithms of their ratio
// (of what only moves bytes: of the time of all rows together).
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
struct TimedStream {  // what only moves bytes
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

// Changes what the times say something about: gemm_reach, gemm_ramp, launch_seconds (products),
// accumulate_factor (if some accumulate), memory_reach (streams), attention_forward, _backward,
// _ramp and _head (attention of both passes; _head if several head sizes below 129), and the
// domain's link with reach 1 (collectives); and the residuals of these. The rest stays, peaks and
// sizes too; the constants that are fitted matter as beginnings. No reach comes out above 1.
// REQUIRES: seconds above 0; peaks and bandwidths that the times need above 0.
spec::Machine fit_machine(spec::Machine machine, const Times& times);

}  // namespace trireme::plan
