// SPDX-License-Identifier: Apache-2.0
#include "obs/files/phases.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace trireme::obs {
namespace {

constexpr std::array<std::string_view, static_cast<size_t>(Phase::count)> phase_names = {
    "startup",   "restore",      "warmup",     "useful",    "skipped",      "repeated", "data_wait",
    "straggler", "exposed_save", "validation", "exporting", "sdc_check",    "detect",   "abort",
    "reform",    "degraded",     "idle_spare", "queue",     "planned_stop", "closing",  "unknown"};

}  // namespace

std::string_view name_of(Phase phase) { return phase_names.at(static_cast<size_t>(phase)); }

std::optional<Phase> phase_from(std::string_view name) {
  for (size_t i = 0; i < phase_names.size(); ++i) {
    if (phase_names[i] == name) return static_cast<Phase>(i);
  }
  return {};
}

PhaseClock::PhaseClock(Phase phase, double since, Clock clock)
    : clock_(std::move(clock)), current_(phase), begin_(since), changed_(since) {}

void PhaseClock::change(Phase to) {
  const double now = std::max(changed_, clock_());
  seconds_[static_cast<size_t>(current_)] += now - changed_;
  changed_ = now;
  current_ = to;
}

void PhaseClock::move(Phase from, Phase to, double seconds) {
  TRIREME_CHECK(seconds >= 0, "{} seconds from {} to {}", seconds, name_of(from), name_of(to));
  change(current_);  // charges the time until now
  const double moved = std::min(seconds, seconds_[static_cast<size_t>(from)]);
  seconds_[static_cast<size_t>(from)] -= moved;
  seconds_[static_cast<size_t>(to)] += moved;
}

PhaseClock::Span PhaseClock::take() {
  change(current_);
  Span span{.begin = begin_, .end = changed_, .seconds = seconds_};
  begin_ = changed_;
  seconds_ = {};
  return span;
}

}  // namespace trireme::obs
