// SPDX-License-Identifier: Apache-2.0
// The line that a logged step prints, with TorchTitan's names, so that its parsers work:
//   step: 10  loss:  4.72150  grad_norm:  1.2345  lr: 3.0e-04  tokens: 5.24M  tps: 5,847 (89.7 s)
//   memory: 49.66GiB(52.28%)  mfu: 34.24%
// (one line; the seconds of a step are in parentheses). Only this file formats it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace trireme::obs {

struct StepLine {
  int64_t step = 0;
  double loss = 0;  // nats per token
  double grad_norm = 0;
  double learning_rate = 0;
  int64_t tokens = 0;  // trained on so far, including earlier attempts
  double tokens_per_second = 0;
  double step_seconds = 0;
  int64_t memory_bytes = 0;               // peak
  std::optional<double> memory_fraction;  // of the device, 0 to 1; omitted if unknown
  std::optional<double> mfu;              // 0 to 1; omitted if the peak is unknown
  int64_t skipped = 0;                    // steps since the previous line; omitted if 0
};

std::string step_line(const StepLine&);

}  // namespace trireme::obs
