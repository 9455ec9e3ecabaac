// SPDX-License-Identifier: Apache-2.0
// A golden file of make_goldens.py, a run of the engine on its batches, and the comparison of the
// two.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/text/json.h"
#include "ckpt/hf/safetensors.h"
#include "spec/model.h"

namespace trireme::tests {

struct Golden {
  std::string name;
  spec::ModelDims dims;
  base::Json training;  // optimizer settings and one record a step
  base::Json pytorch;   // the error of PyTorch's float32 run, for the report
  std::map<std::string, std::vector<float>> init;
  // By parameter: float64 values, and the root mean square effect of rounding to float32.
  std::map<std::string, std::vector<double>> grads, finals;
  std::map<std::string, std::vector<float>> grads_spread, finals_spread;
  std::vector<int32_t> tokens, labels;  // [steps, sequences * length]
};

// REQUIRES: `name` is one of the models of make_goldens.py.
Golden read_golden(const std::string& name);

// The results of a program: gradients of the mean loss at the first step, the weights after the
// last, and the mean loss and number of valid tokens of each step.
struct GoldenRun {
  std::map<std::string, std::vector<double>> grads;
  std::map<std::string, std::vector<float>> finals;
  std::vector<double> losses;
  std::vector<int64_t> tokens;
};

// Trains an engine on the CPU with the dims, weights, labels and settings of `golden`.
GoldenRun run_golden(const Golden& golden);

struct Comparison {
  std::vector<std::string> problems;  // human-readable; empty if the run is right
  // Differences in units of the spread.
  double grad_largest = 0, grad_rms = 0, final_largest = 0, final_rms = 0, loss_largest = 0;
};

// The spread is the standard deviation of the differences that float32 makes with plain sums
// (rounding.py). No difference may exceed 8 spreads: with a spread estimated from 32 runs, a normal
// difference does so once in 10^8. The root mean square over all elements of all parameters, which
// is 1 for plain sums, may not exceed 2, because the elements of one run are not independent. If
// the spread is zero, as in rows of tokens that do not occur, the value must be exact.
Comparison compare(const Golden& golden, const GoldenRun& run);

}  // namespace trireme::tests
