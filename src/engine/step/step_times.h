// SPDX-License-Identifier: Apache-2.0
// StepTimes: where the compute stream of this rank spent the time of steps. Every span between two
// timed events belongs to one class, so they sum to the time from the end of one step to the end of
// the next.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace trireme::engine {

// What compute waits for.
enum class Wait : uint8_t { tp, cp, ep, data, pp, closing, input, save, count };
std::string_view name_of(Wait);

struct StepTimes {
  int64_t steps = 0;       // measured
  double seconds = 0;      // of these steps, from end to end
  double max_seconds = 0;  // the longest
  double compute = 0;
  double gap = 0;  // no work was queued: between the end of a step and the next one's begin
  std::array<double, static_cast<size_t>(Wait::count)> wait{};
};

}  // namespace trireme::engine
