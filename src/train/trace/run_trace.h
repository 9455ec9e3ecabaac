// SPDX-License-Identifier: Apache-2.0
// RunTrace: the traced steps of a run. Every rank records its streams (stream_timeline.h) and its
// actions (step_picture.h); behind the last traced step the first rank receives all of it and
// writes trace_steps_a-b.json, collectives.json and, of a pipeline, pipeline_steps_a-b.svg and
// pipeline.json into the run's folder.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "train/trace/rank_trace.h"
#include "train/trace/step_picture.h"
#include "train/trace/stream_timeline.h"
#include "train/trace/trace_steps.h"

namespace trireme::train {

class RunTrace {
 public:
  static constexpr const char* collectives_name = "collectives.json";
  static constexpr const char* pipeline_name = "pipeline.json";

  // Records of all ranks may take as many bytes; the JSON has four times as many. Each rank records
  // the first traced step, and later ones while its share of the limit lasts. If the first steps of
  // all ranks exceed it, evenly spaced ranks are kept.
  static constexpr int64_t max_bytes = int64_t{256} << 20;

  // Both references must outlive it.
  RunTrace(TraceSteps, engine::Engine&, Rank&);

  // Sets the run's folder. Only on the first rank.
  void open(const std::filesystem::path& folder);

  bool is_on() const { return steps_.first > 0; }
  bool contains(int64_t step) const { return picture_ && steps_.contains(step); }
  // Around a step for which contains() is true. Collective; the host waits at both ends.
  void begin_step(int64_t step);
  void end_step();

  // Writes what was traced, after the last traced step or at the end of the run. Returns
  // human-readable log lines; none on other ranks than the first, and none at the second call.
  // Collective. Throws IoError.
  std::vector<std::string> finish();

  // Empty on other ranks, and if no step is traced. The picture becomes empty if the run ended
  // before the first traced step.
  const std::filesystem::path& trace_file() const { return trace_file_; }
  const std::filesystem::path& picture_file() const { return picture_file_; }

 private:
  // Returns the trace of this rank, without spans if it is left out. Collective.
  RankTrace kept_trace();
  void write(const std::vector<std::string>& packed_traces);

  TraceSteps steps_;
  engine::Engine& engine_;
  Rank& rank_;
  std::filesystem::path folder_, trace_file_, picture_file_;
  std::unique_ptr<StreamTimeline> timeline_;  // until finish()
  std::unique_ptr<StepPicture> picture_;      // until finish()
  bool records_ = false;                      // the step that is running
  int64_t unrecorded_steps_ = 0;              // traced, but beyond the limit
  std::vector<std::string> lines_;
};

// Returns which ranks are kept if ranks have recorded so many bytes: every n-th, for the smallest n
// for which these are at most `limit`.
int kept_stride(const std::vector<int64_t>& bytes, int64_t limit);

}  // namespace trireme::train
