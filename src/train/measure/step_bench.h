// SPDX-License-Identifier: Apache-2.0
// The speed and memory of training steps on random tokens: what `trireme bench train` measures.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/text/json_fwd.h"
#include "config/config.h"
#include "spec/plan.h"
#include "train/measure/copies/copy_bench.h"
#include "train/measure/lone_rank/lone_rank.h"
#include "train/measure/lone_rank/lone_transfers.h"
#include "train/measure/roofline.h"
#include "train/setup/fit.h"

namespace trireme::train {

struct StepBenchOptions {
  spec::Workload work;
  spec::Layout layout;
  config::System system;
  int64_t steps = 6, warmup = 2;  // timed steps, and steps before them
  bool captures = true;           // replays steps from a captured graph, on devices that can
  int64_t observed_steps = 0;     // further steps, uncaptured, with a time for each operation
  int64_t copy_interval = 0;      // further steps with copies of the state; 0: none
  std::optional<int> as_rank;     // this rank of a layout of several, without the others
  FitKeys keys;                   // named by the error if the memory does not suffice
  double start_seconds = 0;       // of obs::steady_seconds(); start-up is counted from here
  std::function<void(int64_t done)> progress;  // after steps; may be empty
};

// All that is measured on the device before it is given back.
struct StepBench {
  std::vector<double> seconds;  // of each step, sorted
  double first_seconds = 0;     // of the first timed step
  double wall_seconds = 0;      // of all timed steps
  double startup_seconds = 0;
  bool was_captured = false;
  double loss = 0;
  bool has_loss = true;  // the head is on this rank
  spec::Plan plan;
  spec::MemoryTable measured;
  int64_t ledger_bytes = 0, driver_used_bytes = 0, context_bytes = 0;
  std::string hardware;
  std::vector<TimedOp> observed;  // of observed_steps
  int64_t observed_steps = 0;
  // ---- of a rank without its peers
  std::optional<LoneRankFacts> lone;
  std::optional<LoneTransfers> transfers;
  spec::TrafficTable sent;  // in a timed step
  int64_t skipped = 0;      // steps whose update was not applied, of all
  std::optional<CopyBench> copies;

  double median() const { return seconds[seconds.size() / 2]; }
  const spec::MemoryTable& predicted() const {
    return lone ? lone->memory : plan.predicted.memory.front();
  }
  double tokens() const {
    return static_cast<double>(plan.microbatch_tokens() * plan.schedule.microbatches);
  }
};
// Returns the times of further steps, in their order. Waits for the device.
std::vector<double> step_seconds(engine::Engine&, engine::MicrobatchSource&, int64_t steps);

// REQUIRES: steps >= 1; with as_rank a layout that check_lone_rank() accepts, and no copies. Throws
// ConfigError or OutOfMemory before anything is timed, and ConfigError if rows of experts exceed
// their budget.
StepBench bench_steps(const spec::ModelSpec&, const StepBenchOptions&);

struct StepBenchPeaks {
  Peak flops;                // that MFU refers to
  std::optional<Peak> gemm;  // measured
  std::optional<Roofline> roofline;
};
struct PeakOptions {
  double given_tflops = 0;  // 0: the datasheet's, or measured if the hardware has none
  bool measures_gemm = false;
  bool has_roofline = false;
};
// Measures what no datasheet states, on a device that it makes for this.
StepBenchPeaks bench_peaks(const StepBench&, const config::System&, const PeakOptions&);

// `time`: predicted for a rank without its peers; null: not predicted.
base::Json to_json(const spec::ModelSpec&, const StepBenchOptions&, const StepBench&,
                   const StepBenchPeaks&, const LoneRankTime* time = nullptr);

}  // namespace trireme::train
