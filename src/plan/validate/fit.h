// SPDX-License-Identifier: Apache-2.0
// Fits constants of stacks and machines that neither data sheets nor measured operations provide to
// published runs, and evaluates a fit on held-out runs.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "plan/validate/validate.h"

namespace trireme::plan {

// A constant that is fitted.
struct Knob {
  std::string name;  // "megatron-2021.gemm"
  double low = 0, high = 1;
  double start = 0;
  // Returns the field of a run that holds the constant; null if the run does not use it.
  std::function<double*(PublishedRun&)> field;
};
const std::vector<Knob>& knobs();

struct Fitted {
  std::string name;
  double shipped = 0, fitted = 0;
  int runs = 0;  // number of runs that use it
};

// Fits the constants to the times in `train`, and sets them in `train` and `apply`. A fit begins at
// Knob::start and ignores the shipped values, because those were fitted to runs that may be held
// out. Runs without a time, or with a reason, do not count. The result depends on the arguments
// alone.
std::vector<Fitted> fit(std::vector<PublishedRun>& train, std::vector<PublishedRun>& apply);

// Every run predicted with constants that were fitted to other runs: to those of other sources, or
// to the other half of a split by a hash of the run's id.
struct HeldOut {
  std::vector<PublishedRun> runs;  // with the constants of their fit
  std::vector<Validated> rows;     // predictions of `runs`
};
HeldOut leave_one_source_out(const std::vector<PublishedRun>&,
                             const std::function<void(double done)>& progress);
HeldOut hash_split(const std::vector<PublishedRun>&,
                   const std::function<void(double done)>& progress);

}  // namespace trireme::plan
