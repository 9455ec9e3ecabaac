// SPDX-License-Identifier: Apache-2.0
// The time of one operation on a GPU or CPU.
#pragma once

#include <cstdint>

#include "plan/job.h"
#include "plan/stack.h"
#include "spec/facts/backend.h"
#include "spec/facts/op_cost.h"
#include "spec/machine.h"

namespace trireme::plan {

// How a product in 8 bits is summed and scaled (spec::Processor); `any`: as programs do on average.
enum class Float8Product : uint8_t { any, fast, split, block, rows };

struct ProductFormat {
  Precision precision = Precision::bf16;
  Float8Product float8 = Float8Product::any;
};

struct Product {
  int64_t m = 0, n = 0, k = 0;
  int64_t count = 1;  // equal products in one call
  double bytes = 0;   // operands and results of all of them
  bool accumulates = false;
  Float8Product float8 = Float8Product::any;  // has no effect on other formats
};
// Returns the time of tiles spread over units. Half of the work is counted in full waves, because
// libraries split the last wave.
double gemm_seconds(const spec::Processor&, const Product&, Precision);

// Causal attention of sequences of equal length.
struct Attention {
  spec::AttentionShape shape;
  bool backward = false;
  double pairs_factor = 1;   // computed pairs relative to a full causal sequence of this length
  bool fixed_order = false;  // the backward sums dQ in a fixed order
};
double attention_seconds(const spec::Processor&, const Stack&, const Attention&);
// Does its fixed order of sums take additional time (Processor::attention_fixed_order)?
bool is_order_priced(const spec::Processor&, const Attention&);

double streaming_seconds(const spec::Processor&, double bytes);

}  // namespace trireme::plan
