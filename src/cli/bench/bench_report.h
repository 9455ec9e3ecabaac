// SPDX-License-Identifier: Apache-2.0
// What `bench train` measured, as one JSON object and as text.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/text/json_fwd.h"
#include "cli/shell/args.h"
#include "train/measure/roofline.h"
#include "spec/plan.h"

namespace trireme::cli {

// All that is measured on the device before it is given back.
struct BenchResult {
  std::vector<double> seconds;  // of each step, sorted
  double first_seconds = 0;     // of the first timed step
  double wall_seconds = 0;      // of all timed steps
  double startup_seconds = 0;
  bool was_captured = false;
  double loss = 0;
  spec::Plan plan;
  spec::MemoryTable measured;
  int64_t ledger_bytes = 0, driver_used_bytes = 0, context_bytes = 0;
  std::string hardware;
  std::vector<train::TimedOp> observed;  // of observed_steps
  int64_t observed_steps = 0;

  double median() const { return seconds[seconds.size() / 2]; }
  double tokens() const {
    return static_cast<double>(plan.microbatch_tokens() * plan.schedule.microbatches);
  }
};

struct BenchPeaks {
  train::Peak flops;                // that MFU refers to
  std::optional<train::Peak> gemm;  // measured
  std::optional<train::Roofline> roofline;
};

base::Json bench_json(const Args&, const spec::ModelSpec&, const BenchResult&, const BenchPeaks&);
// `json` is bench_json() of the same.
void print_bench(const BenchResult&, const BenchPeaks&, const base::Json& json);

}  // namespace trireme::cli
