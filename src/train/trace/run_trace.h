// SPDX-License-Identifier: Apache-2.0
// RunTrace: the traced steps of a run: the first rank's operations as a Chrome trace (trace.h), and
// all ranks' actions as a picture of the pipeline (step_picture.h).
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "train/trace/step_picture.h"
#include "train/trace/trace.h"

namespace trireme::train {

class RunTrace {
 public:
  // Both references must outlive it.
  RunTrace(TraceSteps, engine::Engine&, Rank&);

  // Opens the trace in the run's folder, if steps are traced. Only on the first rank. Throws
  // IoError.
  void open(const std::filesystem::path& folder);

  bool contains(int64_t step) const { return picture_ && steps_.contains(step); }
  // Around a step for which contains() is true. Collective; the host waits at the end.
  void begin_step(int64_t step);
  void end_step();

  // Writes what was traced, after the last traced step or at the end of the run. Returns
  // human-readable log lines; the second call returns none.
  std::vector<std::string> finish();

  // Empty on other ranks, and if no step is traced. The picture becomes empty if the run ended
  // before the first traced step.
  const std::filesystem::path& trace_file() const { return trace_file_; }
  const std::filesystem::path& picture_file() const { return picture_file_; }

 private:
  TraceSteps steps_;
  engine::Engine& engine_;
  std::filesystem::path trace_file_, picture_file_;
  std::unique_ptr<Trace> trace_;          // on the first rank, until finish()
  std::unique_ptr<StepPicture> picture_;  // until finish()
};

}  // namespace trireme::train
