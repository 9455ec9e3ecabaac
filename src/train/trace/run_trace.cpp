// SPDX-License-Identifier: Apache-2.0
#include "train/trace/run_trace.h"

#include <fmt/format.h>

namespace trireme::train {

RunTrace::RunTrace(TraceSteps steps, engine::Engine& engine, Rank& rank)
    : steps_(steps), engine_(engine) {
  if (steps.first > 0) picture_ = std::make_unique<StepPicture>(engine, rank);
}

void RunTrace::open(const std::filesystem::path& folder) {
  if (steps_.first == 0) return;
  const auto named = [&](const char* kind, const char* ending) {
    return folder / fmt::format("{}_steps_{}-{}.{}", kind, steps_.first, steps_.last, ending);
  };
  trace_file_ = named("trace", "json");
  picture_file_ = named("pipeline", "svg");
  trace_ = std::make_unique<Trace>(trace_file_, engine_.compute());
}

void RunTrace::begin_step(int64_t step) {
  picture_->begin_step(step);
  if (trace_) trace_->begin_step(step);
}

void RunTrace::end_step() {
  if (trace_) trace_->end_step();
  picture_->end_step();
}

std::vector<std::string> RunTrace::finish() {
  const bool is_drawn = trace_ && picture_ && picture_->has_steps();
  if (is_drawn) picture_->write(picture_file_);
  const double ratio = is_drawn ? picture_->ratio() : 0;
  picture_.reset();
  if (!trace_) return {};
  trace_->finish();
  std::vector<std::string> lines = {fmt::format("trace     {}: {} waits of the host inside steps",
                                                trace_file_.string(), trace_->waits())};
  trace_.reset();
  if (is_drawn) {
    lines.push_back(fmt::format("picture   {}: measured steps took {:.3f} of the simulated time",
                                picture_file_.string(), ratio));
  } else {  // the run ended before the first traced step
    picture_file_.clear();
  }
  return lines;
}

}  // namespace trireme::train
