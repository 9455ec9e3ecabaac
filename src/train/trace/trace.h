// SPDX-License-Identifier: Apache-2.0
// Steps of training as a Chrome trace (chrome://tracing, ui.perfetto.dev): every operation on its
// stream, with layer, shape and cost, and below it when the host queued it. Traced steps are not
// captured as a graph, and the host waits before and after each. Every event has a category: step,
// compute, memory, optimizer or host.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "obs/output_file.h"
#include "train/trace/op_timeline.h"

namespace trireme::train {

// Steps [first, last], counted from 1; first = 0: none.
struct TraceSteps {
  int64_t first = 0, last = 0;
  bool contains(int64_t step) const { return first > 0 && step >= first && step <= last; }
};
// Parses "first:last"; throws ConfigError. `steps`: of the run.
TraceSteps trace_steps_from(const std::string& text, int64_t steps);

class Trace {
 public:
  // Throws IoError if the file cannot be written.
  Trace(std::filesystem::path file, device::Stream& stream);

  void begin_step(int64_t step);
  void end_step();  // waits for the stream
  // Completes the file. Call last.
  void finish();

  const std::filesystem::path& path() const { return file_.path(); }
  int waits() const { return waits_; }  // of the host for the device, inside steps

 private:
  void add(const std::string& event);  // one object of the list
  void write_if_large();

  obs::OutputFile file_;
  std::string stream_name_;
  OpTimeline timeline_;
  std::string text_;  // not yet written
  bool is_first_ = true;
  int64_t step_ = 0, first_step_ = 0;
  double begin_seconds_ = 0;                     // of the first step, by the host's clock
  int64_t stream_end_ns_ = 0, host_end_ns_ = 0;  // where the last step ended, since begin_seconds_
  int waits_ = 0;
};

}  // namespace trireme::train
