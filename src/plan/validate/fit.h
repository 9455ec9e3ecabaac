// SPDX-License-Identifier: Apache-2.0
// Fits the few constants of stacks and machines that no data sheet and no measured operation gives
// to published runs, and says what a fit is worth on runs that it has not seen.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "plan/validate/validate.h"

namespace trireme::plan {

struct Knob {
  std::string name;  // "megatron-2021.gemm"
  double low = 0, high = 1;
  double start = 0;  // before any run was seen
  // Where a run has it; null: it does not.
  std::function<double*(PublishedRun&)> field;
};
const std::vector<Knob>& knobs();

struct Fitted {
  std::string name;
  double shipped = 0, fitted = 0;
  int runs = 0;  // that have it
};

// Sets the constants in `train` and, the same, in `apply`, so that the error of time in `train` is
// small. What ships is not looked at: a fit begins at the knobs' start, so that nothing of a run
// that is held out comes in that way. Runs without time, or with a reason, do not count. The result
// depends on the arguments alone.
std::vector<Fitted> fit(std::vector<PublishedRun>& train, std::vector<PublishedRun>& apply);

// Every run predicted with constants that were fitted without it: without its source, or without
// its half of a split by a hash of its id.
struct HeldOut {
  std::vector<PublishedRun> runs;  // with the constants that were used
  std::vector<Validated> rows;     // of `runs`
};
HeldOut leave_one_source_out(const std::vector<PublishedRun>&,
                             const std::function<void(double done)>& progress);
HeldOut hash_split(const std::vector<PublishedRun>&,
                   const std::function<void(double done)>& progress);

}  // namespace trireme::plan
