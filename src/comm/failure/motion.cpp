// SPDX-License-Identifier: Apache-2.0
#include "comm/failure/motion.h"

#include <algorithm>
#include <vector>

namespace trireme::comm {

Motion MotionWatch::look(const Look& look, double now) {
  // A process that did not run could not move.
  constexpr double max_pause_s = 1;
  const bool was_paused = now - looked_at_ > max_pause_s;
  looked_at_ = now;
  if (was_paused || !last_ || last_->phase != look.phase) {
    moved_at_ = step_at_ = now;
    is_whole_ = false;
    // Steps of other shapes follow.
    if (look.phase == "warm-up") steps_.clear();
  } else if (last_->steps != look.steps) {
    constexpr size_t max_steps = 1280;
    if (is_whole_ && look.has_limit) steps_.push_back(now - step_at_);
    if (steps_.size() > max_steps) steps_.pop_front();
    moved_at_ = step_at_ = now;
    is_whole_ = true;
  } else if (last_->moves != look.moves) {
    moved_at_ = now;
  }
  last_ = look;
  return {.phase = look.phase,
          .still_s = now - moved_at_,
          .limit_s = look.has_limit ? limit() : 0,
          .step = look.step};
}

std::optional<MotionWatch::Look> look_at(const base::RankActivity& activity,
                                         const FlightRecorder& recorder) {
  const base::ActivityPhase* phase = activity.phase();
  if (phase == nullptr) return std::nullopt;
  const std::optional<base::QueuedWork::Count> work = activity.work();
  const bool is_behind = work && work->is_pending();
  const bool is_preparing = phase == &base::warm_up_phase || phase == &base::compile_phase;
  if (is_behind && !is_preparing) phase = &base::step_phase;
  uint64_t moves = recorder.progress() + static_cast<uint64_t>(work ? work->done : 0);
  if (!is_behind) moves += activity.ops() + recorder.scheduled_calls();
  return MotionWatch::Look{.phase = phase->name,
                           .has_limit = phase->has_limit,
                           .step = activity.step(),
                           .steps = work ? work->steps : activity.step(),
                           .moves = moves};
}

double MotionWatch::limit() const {
  constexpr size_t min_steps = 20;
  constexpr double factor = 5, min_limit_s = 2;
  if (steps_.size() < min_steps) return 0;
  std::vector<double> sorted(steps_.begin(), steps_.end());
  const auto rank = sorted.begin() + static_cast<ptrdiff_t>(sorted.size() * 99 / 100);
  std::nth_element(sorted.begin(), rank, sorted.end());
  return std::max(factor * *rank, min_limit_s);
}

}  // namespace trireme::comm
