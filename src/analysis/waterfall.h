// SPDX-License-Identifier: Apache-2.0
// Waterfall: from peak to useful tokens. The measured terms of a step sum, with a signed residual,
// to the measured seconds of a step; the predicted ones to the predicted seconds.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "analysis/run_record.h"

namespace trireme::analysis {

struct WaterfallTerm {
  // "useful", "padding", "recompute", "kernels" ("compute" in place of "useful" and "kernels" if
  // the peak is unknown), "tp", "cp", "ep", "data", "pp", "closing", "late", "bubble", "input",
  // "data_wait", "host", "saves", "skipped", "repeated", "rest" (predicted only)
  std::string id;
  std::string label;                // "kernels below peak"
  std::optional<double> predicted;  // seconds per step; none: nothing was predicted
  double measured = 0;
};

struct Waterfall {
  bool is_measured = false;  // false: the run has no measured steps yet; all else is empty
  std::optional<double> predicted_seconds;
  double measured_seconds = 0;            // per step, by the host's clock
  int64_t first_step = 0, last_step = 0;  // the steps that were measured
  std::vector<WaterfallTerm> terms;
  double residual = 0;  // measured_seconds minus the sum of the measured terms
};

Waterfall waterfall(const RunRecord&);

}  // namespace trireme::analysis
