// SPDX-License-Identifier: Apache-2.0
// The terms of prediction.json under the names of the waterfall, and the parts of compute by FLOPs.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "analysis/run_record.h"

namespace trireme::analysis {

// Compute seconds of a step, by what they are for. They sum to all of them.
struct ComputeParts {
  bool is_of_peak = false;  // false: the peak is unknown; `useful` includes `kernels`
  double useful = 0, kernels = 0, padding = 0, recompute = 0;
};

class PredictedTerms {
 public:
  // `idle_share`: of the tokens, those that train nothing.
  PredictedTerms(const RunRecord& run, double idle_share);

  // None if no time is predicted.
  std::optional<double> seconds() const { return seconds_; }
  // By id of a WaterfallTerm; 0 if it is not predicted, none if nothing is.
  std::optional<double> at(const std::string& id) const;
  std::optional<double> compute() const { return compute_; }  // of a mean rank
  // Splits measured or predicted compute seconds of a mean rank.
  ComputeParts parts_of(double compute, double idle_share) const;

 private:
  std::optional<double> seconds_, compute_;
  double model_flops_ = 0, hardware_flops_ = 0, peak_flops_ = 0, devices_ = 1;
  std::map<std::string, double> terms_;
};

// Returns a number of a JSON object; none if it is not there or not a number.
std::optional<double> number_in(const base::Json& object, const char* key);

}  // namespace trireme::analysis
