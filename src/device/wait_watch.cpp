// SPDX-License-Identifier: Apache-2.0
#include "device/wait_watch.h"

#include <array>
#include <exception>
#include <utility>

#include "base/log.h"

namespace trireme::device {

std::string_view name_of(Wait wait) {
  constexpr std::array<std::string_view, static_cast<size_t>(Wait::count)> names = {
      "tp", "cp", "ep", "data", "pp", "closing", "input", "save"};
  return names[static_cast<size_t>(wait)];
}

Event WaitWatch::record() {
  if (free_.empty()) return compute_.record_timed();
  Event event = std::move(free_.back());
  free_.pop_back();
  compute_.record_timed(event);
  return event;
}

bool WaitWatch::begin(Wait wait) {
  if (spans_ == nullptr || is_in_span_) return false;
  spans_->push_back({wait, record(), {}});
  is_in_span_ = true;
  return true;
}

void WaitWatch::end() noexcept {
  is_in_span_ = false;
  if (spans_ == nullptr || spans_->empty()) return;
  try {
    spans_->back().end = record();
  } catch (const std::exception& error) {
    // The device has failed; the next call that uses it throws.
    base::log_warning("the end of a wait was not recorded: {}", error.what());
    spans_->pop_back();
  }
}

}  // namespace trireme::device
