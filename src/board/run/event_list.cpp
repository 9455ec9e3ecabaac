// SPDX-License-Identifier: Apache-2.0
#include "board/run/event_list.h"

#include <algorithm>

#include "base/text/count_text.h"
#include "board/run/json_file.h"
#include "board/run/secrets.h"

namespace trireme::board {

EventList::EventList(std::filesystem::path file)
    : tail_(std::move(file), {.max_line_bytes = max_line_bytes}) {}

bool EventList::poll() {
  return tail_.poll({.restarted =
                         [&] {
                           if (!events_.empty()) ++restarts_;
                           events_.clear();
                           first_ = damaged_ = 0;
                         },
                     .line =
                         [&](std::string_view line) {
                           if (line.empty()) return;
                           std::optional<base::Json> event = parse_json(line);
                           if (!event || !event->is_object()) {
                             ++damaged_;
                             return;
                           }
                           events_.push_back(masked(*event));
                           if (events_.size() <= max_events) return;
                           events_.pop_front();
                           ++first_;
                         }});
}

base::Json EventList::since(int64_t index) const {
  base::Json list = base::Json::array();
  const int64_t end = first_ + std::ssize(events_);
  for (int64_t i = std::clamp(index, first_, end); i < end; ++i) {
    base::Json event = events_[static_cast<size_t>(i - first_)];
    event["index"] = i;
    list.push_back(std::move(event));
  }
  return {{"events", std::move(list)}, {"next", end}};
}

std::vector<std::string> EventList::problems() const {
  std::vector<std::string> found;
  if (!tail_.problem().empty()) found.push_back("events.jsonl: " + tail_.problem());
  if (damaged_ + tail_.too_long() > 0) {
    found.push_back("events.jsonl: " + base::count_text(damaged_ + tail_.too_long(), "line") +
                    " cannot be read");
  }
  return found;
}

}  // namespace trireme::board
