// SPDX-License-Identifier: Apache-2.0
// What one operation takes on a processor.
#pragma once

#include <cstdint>

#include "plan/job.h"
#include "plan/stack.h"
#include "spec/machine.h"
#include "spec/facts/op_cost.h"
#include "spec/facts/backend.h"

namespace trireme::plan {

struct Product {
  int64_t m = 0, n = 0, k = 0;
  int64_t count = 1;  // of equal products in one call
  double bytes = 0;   // of all of them
  bool accumulates = false;
};
// Tiles over units, in whole waves to one half: libraries split what is left over.
double gemm_seconds(const spec::Processor&, const Product&, Precision);

// Causal attention of sequences of equal length. `pairs_factor`: pairs that are computed over those
// of one causal sequence of that length.
struct Attention {
  spec::AttentionShape shape;
  bool backward = false;
  double pairs_factor = 1;
  bool fixed_order = false;  // of the sums of the backward's dQ
};
double attention_seconds(const spec::Processor&, const Stack&, const Attention&);

double streaming_seconds(const spec::Processor&, double bytes);

}  // namespace trireme::plan
