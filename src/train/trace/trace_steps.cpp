// SPDX-License-Identifier: Apache-2.0
#include "train/trace/trace_steps.h"

#include <fmt/format.h>

#include <charconv>

#include "base/error.h"

namespace trireme::train {

TraceSteps trace_steps_from(const std::string& text, int64_t steps) {
  TraceSteps found;
  const char* end = text.data() + text.size();
  const auto first = std::from_chars(text.data(), end, found.first);
  const bool has_colon = first.ec == std::errc() && first.ptr != end && *first.ptr == ':';
  const auto last =
      has_colon ? std::from_chars(first.ptr + 1, end, found.last) : std::from_chars_result{};
  if (!has_colon || last.ec != std::errc() || last.ptr != end || found.first < 1 ||
      found.last < found.first || found.last > steps) {
    throw base::ConfigError(fmt::format(
        "--trace-steps {}: must be first:last, such as 3:5, with steps from 1 to {}", text, steps));
  }
  return found;
}

}  // namespace trireme::train
