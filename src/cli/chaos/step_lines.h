// SPDX-License-Identifier: Apache-2.0
// StepLines: the steps of a run that is going on, read from its metrics.jsonl as the file grows.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace trireme::cli {

struct StepLine {
  int64_t step = 0, attempt = 0;
  double time = 0;    // seconds since 1970
  double loss = 0;    // may be NaN
  double tokens = 0;  // that the run has consumed
};

class StepLines {
 public:
  explicit StepLines(std::filesystem::path file) : file_(std::move(file)) {}

  // Reads the complete lines that were added since the last call; none if there is no file yet.
  // Throws IoError if the file has become shorter: another run writes to it.
  void read();

  // In the order of the file; a step is there once for each time that it was computed.
  const std::vector<StepLine>& steps() const { return steps_; }
  // When attempts began.
  const std::vector<double>& starts() const { return starts_; }
  int64_t newest() const { return newest_; }  // the highest step; 0: none

 private:
  void take(std::string_view line);

  const std::filesystem::path file_;
  int64_t offset_ = 0;
  std::string rest_;  // an incomplete last line
  std::vector<StepLine> steps_;
  std::vector<double> starts_;
  int64_t newest_ = 0;
};

}  // namespace trireme::cli
