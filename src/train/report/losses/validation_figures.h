// SPDX-License-Identifier: Apache-2.0
// The figures of a validation, by set and in all: first as data, then as log lines and metrics.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "base/text/json_fwd.h"
#include "obs/sinks/metric_sink.h"

namespace trireme::train {

struct ValidationSum {
  double loss_sum = 0;  // nats
  int64_t tokens = 0;   // with a label
  int64_t bytes = 0;    // of text of these tokens; 0: not known
  int64_t dropped = 0;  // rows that experts left out, because they exceeded a budget or capacity

  double loss() const;  // nats per token
  // Bits per byte of text, which compares models with different tokenizers; none: not known.
  std::optional<double> bits_per_byte() const;
};

struct ValidationFigures {
  struct Set {
    std::string name;
    ValidationSum sum;
  };
  std::vector<Set> sets;

  ValidationSum total() const;
  double loss() const { return total().loss(); }
};

// One line; with several sets also one for each of them.
std::vector<std::string> validation_lines(int64_t step, const ValidationFigures&);
// Metrics, and the names that they point to.
struct ValidationMetrics {
  std::deque<std::string> names;
  std::vector<obs::Metric> metrics;
};
ValidationMetrics validation_metrics(const ValidationFigures&);
// By name of the set: loss, tokens, bits_per_byte.
base::Json to_json(const ValidationFigures&);

}  // namespace trireme::train
