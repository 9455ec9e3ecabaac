// SPDX-License-Identifier: Apache-2.0
// EventList: the events of a run as JSON, in the order of events.jsonl. Lines that are no objects
// are counted as damaged.
#pragma once

#include <cstdint>
#include <deque>
#include <filesystem>
#include <string>
#include <vector>

#include "base/text/json.h"
#include "board/series/line_tail.h"

namespace trireme::board {

class EventList {
 public:
  explicit EventList(std::filesystem::path file);
  // Returns whether anything has changed.
  bool poll();

  // Returns {"events":[... with "index"],"next":N}: the events from index `since` on that are kept.
  base::Json since(int64_t index) const;
  int64_t bytes() const { return tail_.offset(); }
  int64_t restarts() const { return restarts_; }
  std::vector<std::string> problems() const;

  // Earlier events are forgotten.
  static constexpr size_t max_events = 50'000;
  static constexpr size_t max_line_bytes = 1 << 16;

 private:
  LineTail tail_;
  std::deque<base::Json> events_;
  int64_t first_ = 0;  // index of the first event that is kept
  int64_t damaged_ = 0;
  int64_t restarts_ = 0;
};

}  // namespace trireme::board
