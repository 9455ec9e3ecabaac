// SPDX-License-Identifier: Apache-2.0
#include "engine/step/step_times.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace trireme::engine {

void StepTimer::begin() {
  collect();
  if (is_open_) {  // a step that was never ended
    watch_.close();
    marks_.pop_back();  // its events may not have been reached
    is_interrupted_ = true;
  }
  is_open_ = is_last_timed_ = is_on_;
  if (!is_on_) return interrupt();
  if (free_.empty()) free_.emplace_back();
  Marks& marks = marks_.emplace_back(std::move(free_.back()));
  free_.pop_back();
  marks.has_waits = measures_waits_;
  marks.follows_step = !std::exchange(is_interrupted_, false);
  marks.begin = watch_.record();
  if (marks.has_waits) watch_.open(marks.spans);
}

void StepTimer::end() {
  if (!is_open_) return;
  watch_.close();
  marks_.back().end = watch_.record();
  is_open_ = false;
}

void StepTimer::interrupt() { is_interrupted_ = true; }

void StepTimer::collect() {
  while (!marks_.empty()) {
    Marks& next = marks_.front();
    const bool is_complete = !(is_open_ && marks_.size() == 1) && compute_.is_reached(next.end);
    if (!is_complete) return;
    add(next);
    watch_.give_back(std::exchange(last_end_, std::exchange(next.end, {})));
    recycle(next);
    marks_.pop_front();
  }
}

void StepTimer::add(const Marks& step) {
  last_waits_.reset();
  const double busy = compute_.seconds_between(step.begin, step.end);
  WaitSeconds waits{};
  for (const device::WaitWatch::Span& span : step.spans) {
    waits[static_cast<size_t>(span.wait)] += compute_.seconds_between(span.begin, span.end);
  }
  if (step.has_waits) last_waits_ = waits;
  if (std::exchange(is_first_, false)) return;
  const double gap = step.follows_step ? compute_.seconds_between(last_end_, step.begin) : 0;
  ++sums_.steps;
  sums_.seconds += busy + gap;
  sums_.max_seconds = std::max(sums_.max_seconds, busy + gap);
  sums_.gap += gap;
  if (!step.has_waits) return;
  ++sums_.measured_steps;
  measured_busy_ += busy;
  for (size_t i = 0; i < waits.size(); ++i) sums_.wait[i] += waits[i];
}

void StepTimer::recycle(Marks& marks) {
  watch_.give_back(std::exchange(marks.begin, {}));
  for (device::WaitWatch::Span& span : marks.spans) {
    watch_.give_back(std::move(span.begin));
    watch_.give_back(std::move(span.end));
  }
  marks.spans.clear();
  free_.push_back(std::move(marks));
}

StepTimes StepTimer::take() {
  collect();
  StepTimes times = std::exchange(sums_, {});
  const double busy = times.seconds - times.gap;
  const double measured = std::exchange(measured_busy_, 0);
  // 1 if every step was measured, so that nothing is rounded then.
  const double scale = times.measured_steps == times.steps || measured <= 0 ? 1 : busy / measured;
  for (double& seconds : times.wait) seconds *= scale;
  times.compute = busy - std::accumulate(times.wait.begin(), times.wait.end(), 0.0);
  return times;
}

std::optional<double> StepTimer::last_wait(Wait wait) {
  collect();
  if (!is_last_timed_ || !marks_.empty() || !last_waits_) return std::nullopt;
  return (*last_waits_)[static_cast<size_t>(wait)];
}

}  // namespace trireme::engine
