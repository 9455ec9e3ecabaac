// SPDX-License-Identifier: Apache-2.0
#include "train/generate/stop_text.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace trireme::train {
namespace {

// Returns the length of the longest end of `text` that begins `stop`.
size_t begun(std::string_view text, std::string_view stop) {
  for (size_t length = std::min(text.size(), stop.size() - 1); length > 0; --length) {
    if (text.ends_with(stop.substr(0, length))) return length;
  }
  return 0;
}

}  // namespace

StopText::StopText(std::vector<std::string> stops) : stops_(std::move(stops)) {
  for (const std::string& stop : stops_) TRIREME_CHECK(!stop.empty(), "an empty stop string");
}

std::string StopText::push(std::string_view text) {
  TRIREME_CHECK(!is_stopped_, "text after a stop string");
  held_ += text;
  size_t first_end = std::string::npos, cut = 0;
  for (const std::string& stop : stops_) {
    const size_t at = held_.find(stop);
    if (at == std::string::npos) continue;
    const size_t end = at + stop.size();
    if (end < first_end || (end == first_end && at < cut)) {
      first_end = end;
      cut = at;
    }
  }
  if (first_end != std::string::npos) {
    is_stopped_ = true;
    std::string out = held_.substr(0, cut);
    held_.clear();
    return out;
  }
  size_t kept = 0;
  for (const std::string& stop : stops_) kept = std::max(kept, begun(held_, stop));
  std::string out = held_.substr(0, held_.size() - kept);
  held_.erase(0, held_.size() - kept);
  return out;
}

std::string StopText::finish() { return std::exchange(held_, {}); }

}  // namespace trireme::train
